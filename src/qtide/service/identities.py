"""Identities: how the service knows who sends a request, besides by its own tokens.

People show a signed token of the site's identity provider (OIDC), or are known by the kernel at the
Unix socket. Jobs prove their user by munge or, on clusters without it, by a Slurm token. A site may
use several at once, and a package may add one.
"""

from __future__ import annotations

import asyncio
import hmac
import pwd
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import urllib3

from qtide.backends.clusters.slurm.commands import Slurm, SlurmFailed, default_account
from qtide.backends.clusters.slurm.prolog import (
    FRESH_PROOF,
    binding,
    is_loopback,
    possession,
    token_signature,
)
from qtide.core.errors import UsageError
from qtide.core.plugins import Plugins
from qtide.service.admission import AdmissionRequest, Identity, Refused, Unproven, Unreachable
from qtide.service.task import is_name

if TYPE_CHECKING:
    import jwt

    from qtide.service.configuration import IdentitySetup

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
"""Signatures by a private key. Shared secrets (HS256) are not among them: a public key must never
pass for one."""
LEEWAY = 30.0
"""Seconds by which clocks may differ."""
FRESH_KEYS, RETRY_KEYS = 300.0, 10.0
"""Seconds after which the provider's keys are fetched again, and between two attempts."""
KEEP, MOST_KEPT = 60.0, 10_000
"""Seconds for which a checked token is not checked again, and the number of tokens kept."""
LIMIT = 5.0
"""Seconds that the provider has to send its keys."""
LONGEST = 16_384
"""Maximum characters of a token."""
END_OF_TIME = 10**12
"""What is valid for longer is valid until then, in seconds since 1970."""


@dataclass(frozen=True)
class Person:
    """Somebody who is known by an identity."""

    user: str
    account: str = ""
    groups: frozenset[str] = frozenset()
    until: float = float("inf")
    """When the proof expires."""


class IdentityProvider:
    """Knows people, by what they send or by whom the kernel sees at the Unix socket."""

    async def by_token(self, token: str) -> Person | None:
        """Who sent a bearer token; None if it is of another provider; raises `Unproven`."""
        return None

    async def by_uid(self, uid: int) -> Person | None:
        """Who is at the other end of the Unix socket; None if this provider does not say."""
        return None


IDENTITIES: Plugins[Callable[..., IdentityProvider]] = Plugins("qtide.identities", "identity")


class UnixUsers(IdentityProvider):
    """Users of the service's host, at its Unix socket."""

    async def by_uid(self, uid: int) -> Person | None:
        """The user's name; somebody without one is nobody."""
        try:
            return Person((await asyncio.to_thread(pwd.getpwuid, uid)).pw_name)
        except KeyError:
            return None


class SigningKeys:
    """The public keys of an issuer, from a file or its URL; they change while the service runs."""

    def __init__(self, place: str) -> None:
        try:
            parts = urlsplit(place)
        except ValueError:
            raise UsageError(f"{place} is neither a URL nor a file of keys") from None
        if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            raise UsageError(f"keys from {place} could be anybody's; use https, or a file")
        self._place = place
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched = -FRESH_KEYS
        self._trouble = ""
        """Why the last attempt to fetch them failed, if it did."""
        self._lock = asyncio.Lock()

    async def get(self, name: str) -> jwt.PyJWK | None:
        """The key of that name; one that is unknown may be new.

        A key that is known waits for nobody: whoever names others makes us ask the provider.
        """
        if name not in self._keys or self._age > FRESH_KEYS:
            async with self._lock:
                await self._refresh(name)
        if name not in self._keys and self._trouble:
            raise Unreachable(self._trouble)
        return self._keys.get(name)

    @property
    def _age(self) -> float:
        return time.monotonic() - self._fetched

    async def _refresh(self, name: str) -> None:
        """Fetch the keys again, if that is due; without an answer, those known stay."""
        if self._age <= (FRESH_KEYS if name in self._keys else RETRY_KEYS):
            return
        self._fetched, self._trouble = time.monotonic(), ""
        try:
            self._keys = await asyncio.to_thread(self._fetch)
        except Unreachable as error:
            self._trouble = str(error)

    def _fetch(self) -> dict[str, jwt.PyJWK]:
        import jwt  # only for sites with such tokens; it loads cryptography

        try:
            if urlsplit(self._place).scheme in ("http", "https"):
                text = urllib3.request("GET", self._place, timeout=LIMIT, retries=False).data
            else:
                text = Path(self._place).read_bytes()
        except (OSError, urllib3.exceptions.HTTPError) as error:
            raise Unreachable(f"the keys at {self._place} cannot be read: {error}") from None
        try:
            keys = jwt.PyJWKSet.from_json(text.decode()).keys
        except Exception:  # PyJWT takes any JSON for a set of keys
            raise Unreachable(f"what {self._place} holds is no set of public keys") from None
        return {each.key_id: each for each in keys if isinstance(each.key_id, str)}


class OidcTokens(IdentityProvider):
    """Bearer tokens of an OpenID Connect provider, checked against its published keys."""

    def __init__(
        self,
        issuer: str,
        audience: str,
        jwks: str,
        user_claim: str = "preferred_username",
        account_claim: str = "",
        groups_claim: str = "groups",
    ) -> None:
        _check_installed()
        texts = (issuer, audience, jwks, user_claim, account_claim, groups_claim)
        if any(not isinstance(each, str) for each in texts):
            raise UsageError("everything about an oidc identity is text, in quotes")
        self._issuer, self._audience = issuer, audience
        self._keys = SigningKeys(jwks)
        self._claims = user_claim, account_claim, groups_claim

    async def by_token(self, token: str) -> Person | None:
        """Check signature, issuer, audience and times; the key decides the algorithm."""
        import jwt  # as above

        try:
            stated = jwt.decode(token, options={"verify_signature": False})
            if stated.get("iss") != self._issuer:
                return None
            key = await self._keys.get(str(jwt.get_unverified_header(token).get("kid")))
            if key is None or key.algorithm_name not in ALGORITHMS:
                raise Unproven("the token is signed by a key that its issuer does not publish")
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm_name],
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY,
                options={"require": ["exp", "iat", "iss", "aud"]},
            )
        except jwt.PyJWTError as error:
            raise Unproven(f"the token is not valid here: {error}") from None
        return self._person(claims)

    def _person(self, claims: Mapping[str, Any]) -> Person:
        user, account, groups = (claims.get(name) if name else None for name in self._claims)
        if not isinstance(user, str) or not is_name(user):
            raise Unproven(f"the token has no usable claim {self._claims[0]!r}")
        if account is not None and not (isinstance(account, str) and is_name(account)):
            raise Unproven(f"the token has no usable claim {self._claims[1]!r}")
        named = groups if isinstance(groups, list) else []
        until = min(int(claims["exp"]), END_OF_TIME)
        return Person(user, account or "", frozenset(map(str, named)), until)


class People:
    """Everybody known by the configured identities."""

    def __init__(
        self, providers: Iterable[IdentityProvider], slurm: Slurm | None, clock: Callable[[], float]
    ) -> None:
        self._providers = list(providers)
        self._slurm = slurm
        """Where to look up the accounts of people whose identity names none; None: nowhere."""
        self._clock = clock
        self._kept: dict[str, tuple[float, Person]] = {}

    async def by_token(self, token: str) -> Person:
        """Who sent a token; raises `Unproven` unless one of the providers knows."""
        name, now = sha256(token.encode()).hexdigest(), self._clock()
        until, person = self._kept.get(name, (0.0, None))
        if person is None or until < now:
            person = await self._asked(token)
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[name] = (min(now + KEEP, person.until), person)
        return person

    async def by_uid(self, uid: int) -> Person | None:
        """Who is at the other end of the Unix socket, if a provider says so."""
        for each in self._providers:
            if (person := await each.by_uid(uid)) is not None:
                return await self._with_account(person)
        return None

    async def _asked(self, token: str) -> Person:
        if len(token) > LONGEST or token.count(".") != 2:
            raise Unproven("the token is not known here; get a new one")
        for each in self._providers:
            if (person := await each.by_token(token)) is not None:
                return await self._with_account(person)
        raise Unproven("the token was issued by nobody whom this service trusts")

    async def _with_account(self, person: Person) -> Person:
        """Add the default account that Slurm has for a person whose identity names none."""
        if person.account or self._slurm is None:
            return person
        try:
            account = await default_account(self._slurm, person.user)
        except SlurmFailed as error:
            raise Unreachable(f"Slurm does not say whose account it is: {error}") from None
        return Person(person.user, account, person.groups, person.until)


def people_of(setups: Mapping[str, IdentitySetup], conf: Path | None = None) -> People | None:
    """Make the configured identities; None if there are none. `conf` is Slurm's configuration."""
    if not setups:
        return None
    made = [_made(name, setup) for name, setup in setups.items()]
    asks_slurm = any(setup.accounts == "slurm" for setup in setups.values())
    return People(made, Slurm(conf) if asks_slurm else None, time.time)


def _made(name: str, setup: IdentitySetup) -> IdentityProvider:
    maker = IDENTITIES.load(setup.kind)
    try:
        return maker(**setup.options)
    except TypeError:
        known = ", ".join(signature(maker).parameters) or "no options"
        raise UsageError(f"identities.{name}: {setup.kind} takes {known}; check them") from None


def _check_installed() -> None:
    if find_spec("jwt") is None:
        raise UsageError("signed tokens need a package: pip install 'qtide[oidc]'")


class SlurmTokens:
    """Proofs by a token of `scontrol token` (HS256), for clusters without munge.

    The token itself is never sent, only its claims and a code that its holder alone can make: for
    one request to one service, once, now.
    """

    def __init__(self, key: Path, clock: Callable[[], float] = time.time) -> None:
        _check_installed()
        try:
            self._key = key.read_bytes()
        except OSError as error:
            raise UsageError(f"slurm.jwt_key cannot be read: {error}") from None
        self._clock = clock
        self._seen: dict[str, float] = {}

    async def verify(self, credential: str, request: AdmissionRequest) -> Identity:
        """Identify the sender of a request; a proof is valid once."""
        head, claims, moment, nonce, code = self._parts(credential)
        signature = token_signature(self._key, f"{head}.{claims}")
        words = (request.method, request.path, request.body)
        good = (possession(signature, moment, nonce, binding(*words, a)) for a in request.audiences)
        if not any(hmac.compare_digest(code, each) for each in good):
            raise Unproven(
                "the proof was not made with our cluster's key, or for another request or service"
            )
        user = self._user(f"{head}.{claims}.{signature}")
        now = self._clock()
        if abs(now - float(moment)) > FRESH_PROOF:
            raise Unproven("the proof is too old, or from the future: compare the clocks")
        self._seen = {each: at for each, at in self._seen.items() if now - at < 2 * FRESH_PROOF}
        if code in self._seen:
            raise Unproven("the proof was used before")
        self._seen[code] = now
        try:
            entry = await asyncio.to_thread(pwd.getpwnam, user)
        except KeyError:
            raise Refused(f"there is no user {user!r} here; tell the operator") from None
        return Identity(entry.pw_uid, entry.pw_gid)

    def _parts(self, credential: str) -> list[str]:
        parts = credential.split(".")
        if len(credential) > LONGEST or not credential.isascii() or len(parts) != 5:
            raise Unproven("the proof is not one of a Slurm token")
        if not parts[2].isdecimal() or len(parts[2]) > 12:
            raise Unproven("the proof names no time")
        return parts

    def _user(self, token: str) -> str:
        import jwt  # as above

        try:
            options = {"require": ["exp", "iat", "sun"]}
            claims = jwt.decode(token, self._key, algorithms=["HS256"], options=options)  # type: ignore[arg-type]
        except jwt.PyJWTError as error:
            raise Unproven(f"the Slurm token is not valid: {error}") from None
        return str(claims["sun"])
