"""What every layer uses: types, declared parameters, registries, progress, files."""
