"""Workers of an app: their options, and how a program runs one inside of itself."""
