"""From a release to trained SAEs, by SAELens's own runners."""
