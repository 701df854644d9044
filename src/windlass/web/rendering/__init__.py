"""How things look: values as text, charts and flows as SVG, the story of a job."""
