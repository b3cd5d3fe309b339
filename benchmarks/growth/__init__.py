"""The lines of the part `scaling`: costs at increasing sizes."""
