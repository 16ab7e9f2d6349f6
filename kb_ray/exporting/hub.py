"""An export to a data set repository on the Hugging Face hub.

Imports huggingface_hub only when something is pushed. Knows of the files their names alone.
"""

from __future__ import annotations

import os
from pathlib import Path

from kb_ray.errors import ConfigError, StoreError
from kb_ray.exporting import files

TOKEN = "HF_TOKEN"


def check(repo: str) -> None:
    """ConfigError where nothing could be pushed to this repository: no token, or no name of one."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils._validators import validate_repo_id

    if not os.environ.get(TOKEN):
        raise ConfigError(f"--push-to-hub {repo}: no token, set {TOKEN} to one that may write")
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise ConfigError(f"--push-to-hub {repo}: {_one_line(error)}") from None


def push(folder: Path, repo: str, *, public: bool = False) -> str:
    """Makes the repository where there is none (private unless `public`) and uploads the folder in one commit.

    Returns its address. What an earlier push left, of this view or another, and is not in the folder goes; a file by a
    name that no export gives is its owner's and stays.
    ConfigError where the hub refuses the token or the name, StoreError where it does not answer.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    hub = HfApi(token=os.environ[TOKEN])
    try:
        made = hub.create_repo(repo, repo_type="dataset", private=not public, exist_ok=True)
        # Whole names: the hub's patterns cannot say how many digits, and would take an owner's file with ours.
        there = hub.list_repo_files(made.repo_id, repo_type="dataset")
        hub.upload_folder(
            repo_id=made.repo_id, repo_type="dataset", folder_path=folder,
            delete_patterns=[name for name in there if files.is_own(name)], commit_message=f"Export of {folder.name}",
        )  # fmt: skip
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        kind = ConfigError if status in (401, 403, 404, 409) else StoreError
        raise kind(f"--push-to-hub {repo}: the hub refused ({_one_line(error)}); {folder} is complete") from error
    # What a broken connection raises depends on the HTTP library, which differs between versions of the hub's client.
    except Exception as error:
        raise StoreError(
            f"--push-to-hub {repo}: the hub does not answer ({_one_line(error)}); {folder} is complete, push it again"
        ) from error
    return str(made)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
