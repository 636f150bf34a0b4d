"""Processes for tests that need several, or need to kill one: forked with all imports done."""

import multiprocessing

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["sae_lens_c2r.training.train"])
