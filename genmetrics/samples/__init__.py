"""Everything that opens files of the user: folders, archives, manifests, layouts, images."""
