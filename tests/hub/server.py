"""A Hugging Face Hub on this machine, over real HTTP: `python -m tests.hub.server`.

It speaks what huggingface_hub speaks to publish and to load models, refuses what the Hub
refuses, keeps a log of all requests, and fails where it is told to. The API answers as
127.0.0.1 and the storage of large files as localhost, two hosts to a client.
"""

import base64
import hashlib
import json
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml
from huggingface_hub import ModelCard
from huggingface_hub.utils.sha import sha_fileobj

API_HOST, STORAGE_HOST = "127.0.0.1", "localhost"
TOKEN = "hf_" + "loopback" * 4  # of the user `me`, who may write
ONLINE = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0", "NO_PROXY": "*"}
LARGE = (".safetensors", ".bin", ".pt", ".png")
LICENSES = ("apache-2.0", "mit", "cc-by-4.0", "gemma", "other")  # some of the Hub's
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class Account:
    """Who a token is of, and what it may do."""

    name: str
    role: str = "write"  # or `read`

    def owns(self, repo_id: str) -> bool:
        return repo_id.partition("/")[0] == self.name


@dataclass(frozen=True)
class File:
    """A file in a commit; of a large one only where it lies."""

    size: int
    content: bytes | None = None
    sha256: str | None = None

    @property
    def oid(self) -> str:
        """As git's of a blob, or of a pointer to a large file."""
        if self.content is None:
            return hashlib.sha1(f"pointer to {self.sha256}".encode()).hexdigest()
        return hashlib.sha1(b"blob %d\0" % self.size + self.content).hexdigest()


@dataclass(frozen=True)
class Commit:
    """A state of all files."""

    oid: str
    parent: str | None
    title: str
    files: dict[str, File]


@dataclass
class Repo:
    """A repository of a model."""

    private: bool
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    pull_requests: list[str] = field(default_factory=list)

    def find(self, revision: str) -> Commit | None:
        return self.commits.get(self.branches.get(revision, revision))

    def add(self, parent: Commit | None, title: str, files: dict[str, File]) -> Commit:
        said = parent and parent.oid, title, len(self.commits), sorted(files.items())
        oid = hashlib.sha1(repr(said).encode()).hexdigest()
        self.commits[oid] = Commit(oid, parent and parent.oid, title, files)
        return self.commits[oid]

    def history(self) -> list[Commit]:
        """The commits of the branch main, the newest first."""
        commits, oid = [], self.branches.get("main")
        while oid is not None:
            commits.append(self.commits[oid])
            oid = self.commits[oid].parent
        return commits


@dataclass(frozen=True)
class Seen:
    """A request that has come."""

    method: str
    path: str
    host: str
    authorization: str | None
    number: int
    query: dict[str, str] = field(default_factory=dict)
    size: int = 0  # of its body

    @property
    def writes(self) -> bool:
        """Whether it could change anything on the Hub."""
        return self.method not in ("GET", "HEAD") and self.path != "/api/validate-yaml"


@dataclass(frozen=True)
class Fault:
    """How a request fails."""

    status: int  # that is answered; 0 cuts the connection
    after: bool = False  # done all the same, and only its answer is lost


class RefusedError(Exception):
    """What the Hub answers to a request that it refuses."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


@dataclass
class Answer:
    """What is answered."""

    body: bytes | Path = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def json(cls, content: Any, status: int = 200) -> "Answer":
        return cls(json.dumps(content).encode(), status, {"Content-Type": "application/json"})


class LoopbackHub:
    """The Hub's state and what it does; `serving` puts it onto the network."""

    def __init__(self, storage: Path) -> None:
        self.storage = storage
        self.accounts = {TOKEN: Account("me")}
        self.known_models = {
            "EleutherAI/pythia-70m-deduped",
            "HuggingFaceTB/SmolLM2-135M-Instruct",
            "google/gemma-2-2b",
            "sentence-transformers/all-MiniLM-L6-v2",
        }
        self.known_datasets = {"Skylion007/openwebtext"}
        self.repos: dict[str, Repo] = {}
        self.log: list[Seen] = []
        self.fault: Callable[[Seen], Fault | None] = lambda _: None
        self.port = 0
        self.lock = threading.RLock()

    @property
    def endpoint(self) -> str:
        return f"http://{API_HOST}:{self.port}"

    def environment(self) -> dict[str, str]:
        """The environment of a process that has this Hub as its own."""
        return {**os.environ, **ONLINE, "HF_ENDPOINT": self.endpoint, "HF_TOKEN": TOKEN}

    def put(self, repo_id: str, files: Mapping[str, bytes | File]) -> str:
        """Add a commit by hand to a repository, which is public if it is new; say which."""
        repo = self.repos.setdefault(repo_id, Repo(private=False))
        parent = repo.find("main")
        known = dict(parent.files) if parent else {}
        for path, file in files.items():
            known[path] = File(len(file), file) if isinstance(file, bytes) else file
        repo.branches["main"] = repo.add(parent, "by hand", known).oid
        return repo.branches["main"]

    # What is asked for, by method and path

    def answer(self, seen: Seen, body: Any) -> Answer:
        """Do what a request asks for."""
        path = unquote(seen.path)
        routes: list[tuple[str, str, Callable[..., Answer]]] = [
            ("GET", r"/api/whoami-v2", self._whoami),
            ("POST", r"/api/repos/create", self._create),
            ("POST", r"/api/validate-yaml", self._validate_yaml),
            ("GET", r"/api/models/([^/]+/[^/]+)/auth-check(/write)?", self._auth_check),
            ("GET", r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", self._tree),
            ("POST", r"/api/models/([^/]+/[^/]+)/preupload/(.+)", self._preupload),
            ("POST", r"/api/models/([^/]+/[^/]+)/commit/(.+)", self._commit),
            ("POST", r"/api/models/([^/]+/[^/]+)/branch/(.+)", self._branch),
            ("GET", r"/api/models/([^/]+/[^/]+)/revision/(.+)", self._info),
            ("GET", r"/api/models/([^/]+(?:/[^/]+)?)", self._info),
            ("GET", r"/api/datasets/([^/]+/[^/]+)", self._dataset),
            ("POST", r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", self._batch),
            ("PUT", r"/storage/([0-9a-f]{64})", self._store),
            ("GET", r"/storage/([0-9a-f]{64})", self._stored),
            ("HEAD|GET", r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self._resolve),
        ]
        for methods, pattern, do in routes:
            found = re.fullmatch(pattern, path)
            if found and seen.method in methods.split("|"):
                return do(seen, body, *found.groups())
        raise RefusedError(404, f"There is no {seen.method} {path}")

    def _whoami(self, seen: Seen, *_: Any) -> Answer:
        return Answer.json({"type": "user", "name": self._account(seen).name})

    def _auth_check(self, seen: Seen, _: Any, repo_id: str, write: str | None) -> Answer:
        self._readable(seen, repo_id)
        if write:
            self._writable(seen, repo_id)
        return Answer()

    def _create(self, seen: Seen, body: Any) -> Answer:
        repo_id = f"{body['organization']}/{body['name']}"
        self._writable(seen, repo_id)
        url = {"url": f"{self.endpoint}/{repo_id}", "name": repo_id}
        if repo_id in self.repos:
            return Answer.json({**url, "error": "You already created this model repo"}, 409)
        repo = self.repos[repo_id] = Repo(private=body.get("visibility") == "private")
        attributes = b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"
        files = {".gitattributes": File(len(attributes), attributes)}
        repo.branches["main"] = repo.add(None, "initial commit", files).oid
        return Answer.json(url)

    def _validate_yaml(self, _: Seen, body: Any) -> Answer:
        errors = [{"message": each} for each in self._card_errors(body["content"])]
        return Answer.json({"errors": errors, "warnings": []}, 400 if errors else 200)

    def _info(self, seen: Seen, _: Any, repo_id: str, revision: str = "main") -> Answer:
        if repo_id in self.known_models and repo_id not in self.repos:
            return Answer.json({"id": repo_id, "sha": "0" * 40, "siblings": []})
        repo, commit = self._revision(seen, repo_id, revision)
        siblings = [{"rfilename": path} for path in commit.files]
        found = {"id": repo_id, "sha": commit.oid, "siblings": siblings}
        return Answer.json({**found, "private": repo.private})

    def _dataset(self, _seen: Seen, _: Any, repo_id: str) -> Answer:
        if repo_id not in self.known_datasets:
            raise RefusedError(404, "Repository not found", "RepoNotFound")
        return Answer.json({"id": repo_id, "sha": "0" * 40, "siblings": []})

    def _tree(self, seen: Seen, _: Any, repo_id: str, revision: str) -> Answer:
        assert seen.query["recursive"].lower() == "true", "nobody asks for one folder"
        _, commit = self._revision(seen, repo_id, revision)
        entries = []
        for path, file in sorted(commit.files.items()):
            entry = {"type": "file", "path": path, "size": file.size, "oid": file.oid}
            large = {"oid": file.sha256, "size": file.size, "pointerSize": 130}
            entries.append({**entry, "lfs": large} if file.sha256 else entry)
        return Answer.json(entries)

    def _preupload(self, seen: Seen, body: Any, repo_id: str, revision: str) -> Answer:
        self._writable(seen, repo_id, create_pr="create_pr" in seen.query)
        _, commit = self._revision(seen, repo_id, revision)
        rules = commit.files[".gitignore"].content if ".gitignore" in commit.files else b""
        ignored = body.get("gitIgnore", (rules or b"").decode()).split()
        modes = []
        for path in (each["path"] for each in body["files"]):
            oid = commit.files[path].oid if path in commit.files else None
            mode = "lfs" if path.endswith(LARGE) else "regular"
            skip = any(fnmatch(path, rule) for rule in ignored)
            said = {"path": path, "oid": oid, "uploadMode": mode, "shouldIgnore": skip}
            modes.append(said)
        return Answer.json({"files": modes})

    def _batch(self, seen: Seen, body: Any, repo_id: str) -> Answer:
        self._readable(seen, repo_id)
        storage = f"http://{STORAGE_HOST}:{self.port}/storage"
        objects = []
        for each in body["objects"]:
            answer: dict[str, Any] = {"oid": each["oid"], "size": each["size"]}
            if not (self.storage / each["oid"]).exists():
                answer["actions"] = {"upload": {"href": f"{storage}/{each['oid']}"}}
            objects.append(answer)
        return Answer.json({"objects": objects, "transfer": "basic"})

    def _store(self, _: Seen, body: Any, sha256: str) -> Answer:
        with body.open("rb") as file:
            found = sha_fileobj(file).hex()
        if found != sha256:
            raise RefusedError(400, "The content has another SHA-256.")
        body.replace(self.storage / sha256)
        return Answer(headers={"ETag": sha256})

    def _stored(self, _seen: Seen, _: Any, sha256: str) -> Answer:
        return Answer(self.storage / sha256, headers={"ETag": f'"{sha256}"'})

    def _commit(self, seen: Seen, body: Any, repo_id: str, revision: str) -> Answer:
        create_pr = "create_pr" in seen.query
        self._writable(seen, repo_id, create_pr=create_pr)
        lines = [json.loads(line) for line in body.splitlines() if line.strip()]
        with self.lock:
            repo, parent = self._revision(seen, repo_id, revision)
            header = lines[0]["value"]
            if header.get("parentCommit") not in (None, parent.oid):
                raise RefusedError(
                    412, "A commit has happened since. Please refresh and try again."
                )
            files = dict(parent.files)
            for line in lines[1:]:
                self._apply(line["key"], line["value"], files)
            readme = (files["README.md"].content or b"") if "README.md" in files else b""
            if readme and (errors := self._card_errors(readme.decode())):
                raise RefusedError(400, f"Invalid metadata in README.md: {'; '.join(errors)}")
            commit = repo.add(parent, header["summary"], files)
            answer = {"commitUrl": f"{self.endpoint}/{repo_id}/commit/{commit.oid}"}
            answer["commitOid"] = commit.oid
            if create_pr:
                repo.pull_requests.append(commit.oid)
                number = len(repo.pull_requests)
                answer["pullRequestUrl"] = f"{self.endpoint}/{repo_id}/discussions/{number}"
            else:
                repo.branches[revision] = commit.oid
        return Answer.json(answer)

    def _apply(self, key: str, value: dict[str, Any], files: dict[str, File]) -> None:
        path = value["path"]
        if key == "file":
            content = base64.b64decode(value["content"])
            files[path] = File(len(content), content)
        elif key == "lfsFile" and (self.storage / value["oid"]).exists():
            files[path] = File(value["size"], sha256=value["oid"])
        elif key == "deletedFile" and path in files:
            del files[path]
        else:
            raise RefusedError(400, f"{path} was not uploaded, or is not to be: {key}")

    def _branch(self, seen: Seen, body: Any, repo_id: str, branch: str) -> Answer:
        self._writable(seen, repo_id)
        repo, start = self._revision(seen, repo_id, body.get("startingPoint") or "main")
        if branch in repo.branches:
            raise RefusedError(409, f"Reference already exists: {branch}")
        repo.branches[branch] = start.oid
        return Answer.json({})

    def _resolve(self, seen: Seen, _: Any, repo_id: str, revision: str, path: str) -> Answer:
        _, commit = self._revision(seen, repo_id, revision)
        file = commit.files.get(path)
        if file is None:
            raise RefusedError(404, "Entry not found", "EntryNotFound")
        headers = {"X-Repo-Commit": commit.oid, "ETag": f'"{file.oid}"'}
        if file.sha256 is None:
            return Answer(file.content or b"", headers=headers)
        headers |= {
            "X-Linked-Etag": f'"{file.sha256}"',
            "X-Linked-Size": str(file.size),
            "Location": f"http://{STORAGE_HOST}:{self.port}/storage/{file.sha256}",
        }
        return Answer(status=302, headers=headers)

    # Who may do what

    def _account(self, seen: Seen) -> Account:
        token = (seen.authorization or "").removeprefix("Bearer ")
        if token not in self.accounts:
            raise RefusedError(401, "Invalid credentials in Authorization header")
        return self.accounts[token]

    def _readable(self, seen: Seen, repo_id: str) -> Repo:
        account = self._account(seen) if seen.authorization else None  # anybody may read
        repo = self.repos.get(repo_id)
        if repo is None or (repo.private and not (account and account.owns(repo_id))):
            status = 401 if account is None else 404
            raise RefusedError(status, "Repository not found", "RepoNotFound")
        return repo

    def _writable(self, seen: Seen, repo_id: str, *, create_pr: bool = False) -> None:
        account = self._account(seen)
        if account.role != "write" or not (create_pr or account.owns(repo_id)):
            raise RefusedError(403, "You don't have the rights to write here.")

    def _revision(self, seen: Seen, repo_id: str, revision: str) -> tuple[Repo, Commit]:
        repo = self._readable(seen, repo_id)
        commit = repo.find(revision)
        if commit is None:
            raise RefusedError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return repo, commit

    def _card_errors(self, content: str) -> list[str]:
        try:  # YAML of which every result has a task, a dataset and a metric
            said = ModelCard(content).data.to_dict()
        except (ValueError, yaml.YAMLError) as error:
            return [" ".join(str(error).split())]
        errors = []
        if said.get("license", "mit") not in LICENSES:
            errors.append(f'"license" must be one of [{", ".join(LICENSES)}, ...]')
        for key in ("base_model", "datasets"):
            values = said.get(key) or []
            for value in [values] if isinstance(values, str) else values:
                if not _HUB_ID.fullmatch(str(value)):
                    errors.append(f'"{key}" must be the id of a model or dataset on the Hub')
        return errors


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or every answer takes 40 ms
    hub: LoopbackHub

    def _handle(self) -> None:
        url = urlsplit(self.path)
        host = (self.headers.get("Host") or "").partition(":")[0]
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        who = self.headers.get("Authorization")
        with self.hub.lock:
            size = int(self.headers.get("Content-Length") or 0)
            seen = Seen(self.command, url.path, host, who, len(self.hub.log), query, size)
            self.hub.log.append(seen)
        fault = self.hub.fault(seen)
        if fault and not fault.after:
            return self._fail(fault)
        try:
            answer = self.hub.answer(seen, self._read())
        except RefusedError as refused:
            answer = Answer.json({"error": refused.message}, refused.status)
            answer.headers["X-Error-Message"] = refused.message
            if refused.code:
                answer.headers["X-Error-Code"] = refused.code
        self._fail(fault) if fault else self._send(answer)

    do_GET = do_HEAD = do_POST = do_PUT = _handle  # noqa: N815

    def _read(self) -> Any:
        """The body: as JSON, as bytes, or of a large file the path of where it was put."""
        size = int(self.headers.get("Content-Length") or 0)
        if self.command == "PUT":
            with tempfile.NamedTemporaryFile(dir=self.hub.storage, delete=False) as file:
                while chunk := self.rfile.read(min(size - file.tell(), 1 << 20)):
                    file.write(chunk)
            return Path(file.name)
        body = self.rfile.read(size)
        if len(body) < size:
            raise ConnectionError("the client is gone")
        is_lines = "ndjson" in (self.headers.get("Content-Type") or "")
        return body if is_lines else json.loads(body or b"{}")

    def _fail(self, fault: Fault) -> None:
        self.close_connection = True
        if fault.status == 0:
            self.connection.close()
            return
        if not fault.after:
            self._read()
        # The Hub names the repository in a conflict, too.
        answer = Answer.json({"error": "injected", "url": f"{self.hub.endpoint}/me/saes"})
        answer.status = fault.status
        answer.headers |= {"Connection": "close", "Retry-After": "0"}
        self._send(answer)

    def _send(self, answer: Answer) -> None:
        size = answer.body.stat().st_size if isinstance(answer.body, Path) else len(answer.body)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        if self.command == "HEAD":
            return
        if isinstance(answer.body, Path):
            with answer.body.open("rb") as file:
                shutil.copyfileobj(file, self.wfile)
        else:
            self.wfile.write(answer.body)

    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """A client that goes away in the middle is no news."""


@contextmanager
def serving(storage: Path, *, port: int = 0) -> Iterator[LoopbackHub]:
    """Put a Hub with this folder for large files onto a port, 0 for any that is free."""
    hub = LoopbackHub(storage)
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = _Server((API_HOST, port), handler)
    hub.port = server.server_address[1]
    # Every so many seconds it looks whether to end.
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


def main() -> None:
    """Serve until interrupted."""
    with tempfile.TemporaryDirectory() as storage, serving(Path(storage), port=8899) as hub:
        print(f"A Hub for one: {hub.endpoint}. Ctrl-C ends it, and all that is on it.\n")
        print(f"export HF_ENDPOINT={hub.endpoint} HF_TOKEN={TOKEN} HF_HUB_DISABLE_XET=1")
        print("unset HF_HUB_OFFLINE", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main()
