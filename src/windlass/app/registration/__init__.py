"""How functions and classes become handlers: decorators, their options, kinds."""
