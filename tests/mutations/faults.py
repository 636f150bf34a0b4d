"""Deliberate faults, one at a time planted by `python -m tests.mutations`."""

from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parent.parent.parent / "sae_lens_c2r"
PENALTY = "penalties/c2r.py"
NEIGHBORS = "penalties/neighbors.py"
COSINES = "penalties/cosines.py"
NORMS = "penalties/norms.py"
GATES = "penalties/gates.py"
PROCESSES = "penalties/processes.py"
SCALING = "penalties/scaling.py"
MIXIN = "architectures/c2r.py"
PERIODIC = "architectures/periodic.py"
PENALIZED = "architectures/penalized.py"
SEARCH = "architectures/search.py"
FIRING, COFIRING = "analysis/firing.py", "analysis/cofiring.py"
JOINED_TOPK, JOINED_STEP = "training/joined_topk.py", "training/joined_step.py"
JOINED_TRAINER = "training/joined_trainer.py"


@dataclass(frozen=True)
class Fault:
    """A deliberate fault: in which file, and what takes the place of what."""

    name: str
    file: str
    old: str
    new: str

    def plant(self, package: Path) -> None:
        """Put the fault into a copy of the package."""
        path = package / self.file
        path.write_text(path.read_text().replace(self.old, self.new))


GATE = "return (cosines - threshold).clamp(0, 1).square()"
FAULTS = [
    Fault("gate not squared", GATES, GATE, GATE.removesuffix(".square()")),
    Fault("ReLU dropped", GATES, GATE, GATE.replace(".clamp(0, 1)", "")),
    Fault("gate not differentiated", GATES, GATE, GATE.replace("cosines", "cosines.detach()")),
    Fault("neighbour's norm left out", PENALTY, "norms + norms[neighbors]", "norms + norms"),
    Fault("sum instead of mean", PENALTY, "exponent)).mean()", "exponent)).sum()"),
    Fault("exponent ignored", PENALTY, "if exponent == 1:", "if exponent != 0.5:"),
    Fault(
        "norm over the wrong axis", NORMS, "square().sum(dim=0)", "square().sum(dim=1).sum()"
    ),
    Fault("squared norm", NORMS, "return energy.sqrt()", "return energy"),
    Fault("last tile of samples only", NORMS, "energy += ", "energy = "),
    Fault(
        "uncoalesced entries squared apart",
        NORMS,
        "_batch_norms_of_sparse(feature_acts.coalesce()",
        "_batch_norms_of_sparse(feature_acts._coalesced_(True)",
    ),
    Fault("infinite gradient at 0", PENALTY, "torch.where(positive, base, 1.0) **", "base **"),
    Fault("a pair with itself", PENALTY, "terms.masked_fill(itself, 0.0).sum()", "terms.sum()"),
    Fault(
        "tiles kept for backward",
        PENALTY,
        "checkpoint(\n                _tile_of_pairs,",
        "(lambda f, *x, **_: f(*x))(\n                _tile_of_pairs,",
    ),
    Fault("self not excluded", NEIGHBORS, "cosines.fill_diagonal_(-torch.inf)", "pass"),
    Fault("farthest neighbour", NEIGHBORS, "*cosines.max(dim=1)", "*cosines.neg().max(dim=1)"),
    Fault("columns of tiles forgotten", NEIGHBORS, "if i < j:", "if False:"),
    Fault("place of a tile forgotten", NEIGHBORS, "at + offset", "at"),
    Fault("last tile of a chunk only", NEIGHBORS, "~(values <= highest)", "values > -2"),
    Fault("NaN hidden", NEIGHBORS, "~(values <= highest)", "values > highest"),
    Fault(
        "group of a column forgotten", NEIGHBORS, "group * ROWS_PER_GROUP + within", "within"
    ),
    Fault(
        "neighbour differentiated",
        NEIGHBORS,
        "W_dec.detach(), chunk_size or len(W_dec)",
        "W_dec, chunk_size or len(W_dec)",
    ),
    Fault("always the same chunks", NEIGHBORS, 'f"{seed}:{step}"', 'f"{seed}"'),
    Fault("global random state drawn from", NEIGHBORS, "d_sae, generator=generator)", "d_sae)"),
    Fault(
        "lone latents penalized",
        COSINES,
        "torch.where(alone(neighbors), 0.0",
        "torch.where(alone(neighbors), 1.0",
    ),
    Fault("decoder not normalized", COSINES, "(unit_rows(W_dec[rows]) *", "(W_dec[rows] *"),
    Fault(
        "neighbour's row not differentiated",
        COSINES,
        "weights / right_lengths * (left",
        "0 * weights / right_lengths * (left",
    ),
    Fault(
        "gradient of the first tile only",
        COSINES,
        "for rows in _tiles(W_dec):",
        "for rows in _tiles(W_dec)[:1]:",
    ),
    Fault("tiles' gradients overwritten", COSINES, "in_rows[rows] +=", "in_rows[rows] ="),
    Fault("all pairs under autocast", PENALTY, "with full_precision(W_dec):", "if True:"),
    Fault(
        "range of half precision left by all pairs",
        "penalties/precision.py",
        "wide.register_hook(",
        "str(",
    ),
    Fault("length not differentiated", COSINES, "(right - cosines * left)", "right"),
    Fault(
        "range of half precision left", COSINES, "within_range(in_rows, W_dec.dtype)", "in_rows"
    ),
    Fault("orthogonality not averaged", "penalties/orthogonality.py", ")).mean()", ")).sum()"),
    Fault(
        "scaling inverted", SCALING, "papers_chance / _chance", "1 / papers_chance * _chance"
    ),
    Fault("batch size and width swapped", SCALING, "d_sae / batch_size", "batch_size / d_sae"),
    Fault("norm by the mean", SCALING, ".nanmedian()", ".nanmean()"),
    Fault(
        "factor T missing",
        PERIODIC,
        "self.interval * effective * measured",
        "effective * measured",
    ),
    Fault(
        "interval ignored", PERIODIC, "step_input.n_training_steps % self.interval == 0", "True"
    ),
    Fault(
        "warm-up ignored",
        PERIODIC,
        'of["coefficient"], of["warm_up_steps"]',
        'of["coefficient"], 0',
    ),
    Fault(
        "start step ignored",
        PERIODIC,
        "if step >= self.start_step else 0.0",
        "if True else 0.0",
    ),
    Fault(
        "coefficient 0 still applied",
        PERIODIC,
        "applied = due and coefficient > 0",
        "applied = due",
    ),
    Fault(
        "metrics of penalty steps only",
        PERIODIC,
        "            return {}\n        coefficient",
        "            self.metrics = {}\n            return {}\n        coefficient",
    ),
    Fault(
        "decoder norms forgotten",
        MIXIN,
        "return norms * torch.linalg",
        "return norms; torch.linalg",
    ),
    Fault(
        "activations not differentiated",
        MIXIN,
        "batch_norms(feature_acts, d",
        "batch_norms(feature_acts.detach(), d",
    ),
    Fault("seed ignored", SEARCH, "step_generator(search.seed, ", "step_generator(0, "),
    Fault(
        "neighbours of another decoder",
        SEARCH,
        "        self._found = {}\n\n    def",
        "        pass\n\n    def",
    ),
    Fault("neighbours of another run", SEARCH, "step < before.last_step or", ""),
    Fault(
        "neighbours never new",
        SEARCH,
        "before is None or before.from_step != from_step",
        "before is None",
    ),
    Fault("neighbours kept from step to step", SEARCH, "if search.penalties > 1", "if True"),
    Fault("reused neighbours searched again", SEARCH, "if search.penalties > 1", "if False"),
    Fault("backbone's losses dropped", PENALIZED, "return {**losses, **self", "return {**self"),
    Fault("units of normalized latents forgotten", MIXIN, "unit_of_latents(cfg, norm)", "1.0"),
    Fault(
        "square root of d_in forgotten", "architectures/scale.py", "/ math.sqrt(cfg.d_in)", ""
    ),
    Fault(
        "layer norm's mean kept",
        "architectures/scale.py",
        "sae_in - sae_in.mean(dim=-1, keepdim=True)",
        "sae_in",
    ),
    Fault(
        "the excess gate opens at 0",
        GATES,
        "return max(0.0, chance",
        "return 0 * max(0.0, chance",
    ),
    Fault(
        "the excess gate of all latents in place of a chunk's",
        GATES,
        "candidates(d_sae, chunk_size)",
        "candidates(d_sae, None)",
    ),
    Fault(
        "chance level of one latent more",
        "penalties/chance.py",
        "** (d_sae - 1)",
        "** d_sae",
    ),
    Fault(
        "the excess gate scaled for chance",
        SCALING,
        'if gate == "excess":',
        "if False:",
    ),
    Fault(
        "OrtSAE not scaled for chance",
        "architectures/ort.py",
        "return factor * input_norm",
        "return input_norm",
    ),
    Fault(
        "OrtSAE's gate the paper's",
        "architectures/ort.py",
        "gate_threshold(self.cfg.ort_gate,",
        'gate_threshold("relu",',
    ),
    Fault(
        "absorption by samples of the child among those of the parent alone",
        "analysis/hierarchy.py",
        "alone = parent & (children[:, self._position] == 0)",
        "alone = parent",
    ),
    Fault(
        "a parent found that is not its latent's nearest",
        "analysis/hierarchy.py",
        "features_of_latents[latents[parents]] == parents",
        "features_of_latents[latents[parents]] >= 0",
    ),
    Fault(
        "OrtSAE scaled by r",
        "architectures/ort.py",
        "self.process_group).square()",
        "self.process_group)",
    ),
    Fault(
        "NaN hidden by the root",
        NORMS,
        "torch.where(energy == 0, 0.0",
        "torch.where(~(energy > 0), 0.0",
    ),
    Fault(
        "others' gradients left out",
        PROCESSES,
        "return _Sum.apply(gradient, ctx.process_group), None",
        "return gradient, None",
    ),
    Fault(
        "every process with chunks of its own",
        NEIGHBORS,
        "    agree(order, process_group)\n",
        "",
    ),
    Fault(
        "every chunk searched by all",
        PROCESSES,
        "range(own, n_chunks, n_processes)",
        "range(n_chunks)",
    ),
    Fault(
        "others' samples left out of r",
        SCALING,
        "join_samples(norms.flatten(), process_group)",
        "norms.flatten()",
    ),
    Fault(
        "others' samples left out of B",
        MIXIN,
        "sae_in.shape[:-1].numel(), self.process_group,",
        "sae_in.shape[:-1].numel(), None,",
    ),
    Fault(
        "waits for those that do not log",
        PENALIZED,
        "penalty.is_due(step_input) or self.process_group is None",
        "True",
    ),
    Fault(
        "neighbours not restored",
        "training/long_run.py",
        "trainer.sae.restore_penalties(",
        "print(",
    ),
    Fault(
        "random state not restored",
        "training/long_run.py",
        "restore_random(self.data_state",
        "print(self.data_state",
    ),
    Fault(
        "part of the buffer forgotten",
        "training/stream.py",
        'self._buffer.served = state["served"]',
        'self._buffer.served = state["served"][:0]',
    ),
    Fault(
        "batches that lay ahead forgotten", "training/stream.py", "self._ahead.extend(", "list("
    ),
    Fault(
        "rows read again",
        "training/shared_stream.py",
        "in tqdm(range(rows_of_epoch)",
        "in tqdm(range(0)",
    ),
    Fault(
        "a checkpoint's files not compared",
        "training/checkpoint.py",
        "if _digest(path) != digest:",
        "if False:",
    ),
    Fault(
        "a checkpoint's manifest not compared",
        "training/checkpoint.py",
        "if not whole:",
        "if False:",
    ),
    Fault("old checkpoints kept", "training/checkpoint.py", "self._folders()[:-KEPT]", "[]"),
    Fault(
        "a damaged checkpoint begun anew over",
        "training/finished.py",
        "if checkpoint is None:",
        "if False:",
    ),
    Fault(
        "other settings continued", "training/sameness.py", "elif before != now:", "elif False:"
    ),
    Fault(
        "an unfinished SAE taken for finished",
        "training/finished.py",
        "return (out / sae_id / RECORD).is_file()",
        "return (out / sae_id).is_dir()",
    ),
    Fault(
        "a finished SAE not compared with the plan",
        "training/finished.py",
        "if differs is not None:",
        "if False:",
    ),
    Fault(
        "the seed of the weights ignored",
        "training/runners.py",
        "    torch.manual_seed(plan.seeds[sae_id])\n    return sae_class(config)",
        "    return sae_class(config)",
    ),
    Fault(
        "the seed of the data ignored",
        "training/runners.py",
        "    torch.manual_seed(config.seed)",
        "    torch.manual_seed(0)",
    ),
    Fault(
        "a place of this machine in the config",
        "training/runners.py",
        "sae.cfg.metadata.model_name = source.name or source.hub_id",
        "str()",
    ),
    Fault(
        "a rows' buffer as large as a pass of the model",
        "training/costs.py",
        "rows = batches + plan",
        "rows = batches * plan",
    ),
    Fault(
        "the model's revision left out",
        "training/plan.py",
        "if source.revision is not None:",
        "if False:",
    ),
    Fault(
        "k above d_sae",
        "training/configs.py",
        "if not 1 <= k <= config.d_sae:",
        "if not 1 <= k:",
    ),
    Fault(
        "a folder written before it is whole",
        "_support/writing.py",
        "    partial = begin_folder(beside)",
        "    partial = final; final.mkdir(parents=True)",
    ),
    Fault(
        "batches in another order for another number of processes",
        "training/shared_stream.py",
        "self.rows_of_epoch = n_read",
        "self.rows_of_epoch = self._n_read",
    ),
    Fault(
        "each process shuffles for itself",
        "training/stream.py",
        "self._ranks.broadcast(order)",
        "str(order)",
    ),
    Fault(
        "a batch of features by the state of whoever makes it",
        "training/shared_stream.py",
        "FIRST_SEED + self._n_given + self._ranks.rank",
        "FIRST_SEED + self._n_given",
    ),
    Fault(
        "each process stops by itself",
        "training/long_run.py",
        "decided = self.ranks.largest(wish)",
        "decided = wish",
    ),
    Fault(
        "a part of a checkpoint that was not written taken for written",
        "training/ranks.py",
        "            if problem:",
        "            if False:",
    ),
    Fault(
        "a heartbeat that outlives what it is of",
        "training/heartbeat.py",
        "        self._thread.join(SILENT)\n",
        "",
    ),
    Fault(
        "a restart that only one node knows of",
        "cli/train.py",
        "bool(ranks.largest(int(was_restarted())))",
        "was_restarted()",
    ),
    Fault(
        "other plans trained together",
        "training/agreement.py",
        "if differs is not None:",
        "if False:",
    ),
    Fault(
        "folders that are not shared trained into",
        "training/agreement.py",
        "if not all(found):",
        "if False:",
    ),
    Fault(
        "evaluations read the training's text",
        "training/runners.py",
        "copy.copy(self.activations_store)",
        "self.activations_store",
    ),
    Fault(
        "Matryoshka placed as BatchTopK",
        "training/placement.py",
        ' + sum(getattr(config, "matryoshka_widths", []))',
        "",
    ),
    Fault(
        "the precision of products ignored",
        "training/matmul.py",
        "torch.set_float32_matmul_precision(name or before)",
        "str(name)",
    ),
    Fault(
        "results of other weights taken",
        "evaluation/results.py",
        'about.asked.model_dump() != asked.model_dump(mode="json")',
        'about.asked.settings != asked.model_dump(mode="json")["settings"]',
    ),
    Fault(
        "results of another evaluation read",
        "evaluation/results.py",
        "if found_id != type_id(evaluation):",
        "if False:",
    ),
    Fault(
        "NaN of SAEBench's core taken for -1",
        "evaluation/results.py",
        'evaluation == "core" and value == _NOT_A_NUMBER',
        "False",
    ),
    Fault(
        "infinity among the metrics",
        "evaluation/results.py",
        "not -sys.float_info.max <= value <= sys.float_info.max",
        "value != value",
    ),
    Fault(
        "what was said stays with another result",
        "evaluation/results.py",
        "(folder / ABOUT).unlink(missing_ok=True)",
        "str()",
    ),
    Fault(
        "weights told apart by their shapes",
        "evaluation/hashing.py",
        "digest.update(tensor.detach()",
        "str(tensor.detach()",
    ),
    Fault(
        "configs not told apart",
        "evaluation/hashing.py",
        "json.dumps(config, sort_keys=True, default=str)",
        "json.dumps(None)",
    ),
    Fault(
        "a changed file not noticed",
        "evaluation/hashing.py",
        "return sha_fileobj(file).hex()",
        "return str(path)",
    ),
    Fault(
        "other settings not run again",
        "evaluation/tasks.py",
        '"settings": counted_settings(SAE_LENS, changes),',
        '"settings": {},',
    ),
    Fault(
        "an SAE's folder taken for another's",
        "evaluation/tasks.py",
        'return f"{name}-{digest.hexdigest()[:8]}"',
        "return name",
    ),
    Fault(
        "an SAE that fails stops the others",
        "evaluation/evaluate.py",
        "        except UserError as error:\n            on_error(str(error))\n        except Exception",
        "        except ZeroDivisionError as error:\n            on_error(str(error))\n        except FloatingPointError",
    ),
    Fault(
        "two processes write into one folder",
        "_support/locking.py",
        "lock.acquire(timeout=0)",
        "str(lock)",
    ),
    Fault(
        "an SAE evaluated that has changed since",
        "evaluation/worker.py",
        "if loaded != (asked.weights_sha256, asked.config_sha256):",
        "if False:",
    ),
    Fault(
        "a failure of SAEBench's core not told",
        "evaluation/processes.py",
        "return (swallowed or reasons or",
        "return (reasons or",
    ),
    Fault("a size of 0", "evaluation/eval_settings.py", "if counts and value < 1", "if False"),
    Fault("secrets published", "hub/leaks.py", "if re.search(pattern, text):", "if False:"),
    Fault(
        "paths published",
        "hub/leaks.py",
        "return bool(_WORDS.fullmatch(value)) and not _PLACE.search(value)",
        "return True",
    ),
    Fault("every key published", "hub/local/redact.py", "if key in known and (", "if ("),
    Fault(
        "weights that are not finite published",
        "hub/local/check_files.py",
        "if not (math.isfinite(low) and math.isfinite(high)):",
        "if False:",
    ),
    Fault(
        "weights of other shapes published",
        "hub/local/check_files.py",
        "if shape is not None and header.get_shape() != shape:",
        "if False:",
    ),
    Fault(
        "a threshold of 0 published",
        "hub/local/check_files.py",
        "and high == 0 and learned",
        "and False",
    ),
    Fault(
        "latents that do not fire published",
        "hub/local/prepare_saes.py",
        "if not feature_acts.any():",
        "if False:",
    ),
    Fault(
        "another inference form published",
        "hub/local/prepare_saes.py",
        "if not encodes_alike(found, sae.trained.to_dense(), dtype=published.dtype):",
        "if False:",
    ),
    Fault(
        "links followed out of the folder",
        "hub/local/collect.py",
        "if not inside:",
        "if False:",
    ),
    Fault(
        "measurements of other weights on a card",
        "hub/card/facts.py",
        'of = ("weights_sha256", "architecture", "options")',
        'of = ("architecture", "options")',
    ),
    Fault(
        "an earlier upload's SAEs off the card",
        "hub/card/facts.py",
        "saes = {**self.saes, **later.saes}",
        "saes = dict(later.saes)",
    ),
    Fault(
        "an author's words overwritten",
        "hub/card/readme.py",
        "body = found.body[: begins[0].start()] + block + found.body[ends[0].end() :]",
        "body = block",
    ),
    Fault(
        "foreign results dropped",
        "hub/card/readme.py",
        '[*theirs, *mine["results"]]',
        'mine["results"]',
    ),
    Fault(
        "the repository's licence overruled",
        "hub/card/content.py",
        "if self.facts.license is not None and said != self.facts.license:",
        "if False:",
    ),
    Fault(
        "the same sent again",
        "hub/remote/difference.py",
        "return found.lfs.sha256 == self.sha256",
        "return False",
    ),
    Fault(
        "other content taken for the same",
        "hub/remote/difference.py",
        "return found.blob_id == self.blob_id",
        "return True",
    ),
    Fault(
        "a changed file sent", "hub/remote/publish.py", "if file.has_changed():", "if False:"
    ),
    Fault(
        "a branch overwritten that has moved",
        "hub/remote/publish.py",
        "parent_commit=parent",
        "parent_commit=None",
    ),
    Fault(
        "a lost answer not looked into",
        "hub/remote/publish.py",
        "_ATTEMPTS = 4",
        "_ATTEMPTS = 1",
    ),
    Fault(
        "a repository made public",
        "hub/remote/publish.py",
        "private=not target.public",
        "private=False",
    ),
    Fault(
        "the tag set whatever verification says",
        "hub/verify.py",
        "if found.sha256[name] != file.sha256:",
        "if False:",
    ),
    Fault(
        "another commit verified than was made",
        "hub/verify.py",
        '{"commit": commit}',
        "{}",
    ),
    Fault(
        "what is subtracted of the inputs not absorbed",
        "saes/start_from.py",
        "weights[name] + scale * shift",
        "weights[name]",
    ),
    Fault(
        "a threshold not scaled with the inputs",
        "saes/start_from.py",
        '"b_dec", "threshold", "topk_threshold")',
        '"b_dec", "threshold")',
    ),
    Fault(
        "latents scaled, and their decoder rows not",
        "saes/thresholds.py",
        'weights["W_dec"] / factors[:, None]',
        'weights["W_dec"]',
    ),
    Fault(
        "thresholds of latents' own taken for one",
        "saes/thresholds.py",
        "_ALIKE = 1e-5",
        "_ALIKE = 1.0",
    ),
    Fault(
        "inputs scaled, and what starts on them not",
        "training/scaled_starts.py",
        "            scale_inputs(trainer.sae, factor)\n",
        "",
    ),
    Fault(
        "a residual's threshold forgotten on resumption",
        "training/long_run.py",
        "                self.starts.factor_is_loaded(sae_id, trainer)\n",
        "",
    ),
    Fault(
        "what an SAE starts from no part of its settings",
        "training/sameness.py",
        "if sae_id in plan.starts:",
        "if False:",
    ),
    Fault(
        "an origin taken that has changed since",
        "saes/origin.py",
        "if (found := _digests(files)) != self.sha256:",
        "if not (found := _digests(files)):",
    ),
    Fault(
        "an origin's commit not kept",
        "saes/origin.py",
        "replace(source, revision=commit)",
        "source",
    ),
    Fault(
        "a licence without derivatives not heeded",
        "hub/local/prepare_upload.py",
        "if submission.license is None:",
        "if False:",
    ),
    Fault("a firing paired with itself", FIRING, "firings + 1 - times", "firings - times"),
    Fault("a batch's tokens counted anew", FIRING, "tokens + first_token", "tokens"),
    Fault("entries of 0 fire", FIRING, "[:, acts.values() != 0]", ""),
    Fault("common tokens counted twice", COFIRING, " - together)", ")"),
    Fault("dead latents in the mean", COFIRING, "max(self.live, 1)", "len(self.highest)"),
    Fault("chance with itself", COFIRING, "others[level] -= 1", "others[level] -= 0"),
    Fault(
        "largest activations of the own part",
        JOINED_STEP,
        "if isinstance(sae.activation_fn, BatchTopK):",
        "if False:",
    ),
    Fault(
        "k of the own part",
        JOINED_TOPK,
        "acts.shape[:-1].numel() * dist.get_world_size(self.process_group)",
        "acts.shape[:-1].numel()",
    ),
    Fault(
        "all of equal activations kept",
        JOINED_TOPK,
        "kept[largest] = True",
        "kept = everywhere >= everywhere[largest].min()",
    ),
    Fault(
        "threshold of the own part",
        JOINED_TOPK,
        "dist.all_reduce(smallest, dist.ReduceOp.MIN, group=process_group)",
        "pass",
    ),
    Fault("threshold of the largest part", JOINED_TOPK, "ReduceOp.MIN", "ReduceOp.MAX"),
    Fault(
        "penalties of the own part",
        JOINED_STEP,
        "if isinstance(sae, PenalizedMixin):",
        "if False:",
    ),
    Fault(
        "gradients of the own part",
        JOINED_STEP,
        "dist.all_reduce(total, group=process_group)",
        "pass",
    ),
    Fault(
        "gradients summed",
        JOINED_STEP,
        "copy_(total / dist.get_world_size(process_group))",
        "copy_(total)",
    ),
    Fault(
        "what fired in the own part",
        JOINED_TRAINER,
        "dist.all_reduce(fired, group=process_group)",
        "pass",
    ),
    Fault(
        "dead latents of the own part",
        JOINED_TRAINER,
        "trainer.n_forward_passes_since_fired[fired > 0] = 0",
        "pass",
    ),
    Fault(
        "frequencies of the last step only",
        JOINED_TRAINER,
        "trainer.act_freq_scores = before + fired",
        "trainer.act_freq_scores = fired",
    ),
    Fault(
        "samples of the own part counted",
        JOINED_TRAINER,
        "        return output\n",
        "        trainer.n_training_samples += len(part) - len(sae_in)\n        return output\n",
    ),
    Fault(
        "every part the first",
        JOINED_TRAINER,
        "sae_in.chunk(n_parts)[dist.get_rank(process_group)]",
        "sae_in.chunk(n_parts)[0]",
    ),
    Fault("parts that are not equal", JOINED_TRAINER, "if batch_size % n_parts:", "if False:"),
    Fault(
        "a log of the own part",
        JOINED_TRAINER,
        "dist.all_reduce(values, group=process_group)",
        "values = values * dist.get_world_size(process_group)",
    ),
    Fault(
        "explained variance of the own part",
        JOINED_TRAINER,
        "sae_out=gather_parts(output.sae_out, process_group),",
        "sae_out=output.sae_out.repeat(dist.get_world_size(process_group), 1),",
    ),
    Fault(
        "batches not split",
        "training/fitting.py",
        "if long_run.batch_group is not None:",
        "if False:",
    ),
    Fault(
        "not said who ended in a step",
        "training/fitting.py",
        "with bars, long_run.ranks.naming_who_ended():",
        "with bars:",
    ),
    Fault(
        "every error taken for that of an exchange",
        "training/ranks.py",
        "if not _is_of_an_exchange(error):",
        "if False:",
    ),
    Fault("teams that are not equal", "training/teams.py", "if n_ranks % n_saes:", "if False:"),
    Fault(
        "architectures split that are not known",
        "training/joined_step.py",
        "return backbone in KNOWN",
        "return True",
    ),
    Fault(
        "all of a team's processes save",
        "training/train.py",
        "if self.team.is_first else []",
        "",
    ),
    Fault(
        "a run that was split earlier",
        "training/train.py",
        "max(self.team.size, _processes_per_batch(resumed))",
        "self.team.size",
    ),
    Fault(
        "the k of another step",
        "training/annealing.py",
        "k_at(step_input.n_training_steps,",
        "k_at(step_input.n_training_steps + 1,",
    ),
    Fault(
        "a k that does not fall",
        "training/annealing.py",
        "    sae.training_forward_pass = with_k_of_step",
        "    sae.other_forward_pass = with_k_of_step",
    ),
    Fault(
        "massive tokens left out by the mean norm",
        "training/norm_filter.py",
        "norms.median()",
        "norms.mean()",
    ),
    Fault(
        "massive tokens kept in the stream",
        "training/shared_stream.py",
        "yield within_norm(acts, self._norm_multiple)",
        "yield acts",
    ),
    Fault(
        "features that each process draws for itself",
        "training/plan_checks.py",
        'if source.config.get("seed") is None:',
        "if False:",
    ),
    Fault(
        "a schedule longer than the training",
        "training/plan_checks.py",
        "warm_up + decay > theirs.total_training_steps",
        "False",
    ),
    Fault(
        "rows longer than the model takes",
        "training/model_check.py",
        "source.context_size > site.n_tokens",
        "False",
    ),
    Fault(
        "a k that stays where it has fallen to",
        "training/annealing.py",
        "            activation.k = final",
        "            pass",
    ),
    Fault(
        "a model of another width taken",
        "training/model_check.py",
        "config.d_in != site.width",
        "config.d_in < 0",
    ),
    Fault(
        "shared fields that none has let through",
        "training/configs.py",
        "for name in sorted(shared.keys() - names):",
        "for name in ():",
    ),
    Fault(
        "a key of YAML that is there twice",
        "_support/yaml_text.py",
        "if said in first:",
        "if False:",
    ),
    Fault("an alias of itself", "_support/yaml_text.py", "if counted is None:", "if False:"),
]
