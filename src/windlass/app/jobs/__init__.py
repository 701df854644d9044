"""Looking at jobs from code: `app.jobs` finds and counts them, and changes nothing."""
