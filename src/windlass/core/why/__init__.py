"""Why a job does not run, or ended as it did, with the remedy."""
