"""Programs of the checkout that are not shipped in the wheel."""
