"""The sections of the report, one file each; the registry finds them."""
