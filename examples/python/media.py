"""Composing a movie review: what it needs is fetched in parallel, and the review is stored in three
places, all in one transaction."""

import asyncio
import hashlib
import hmac
from typing import Any, TypedDict

from millrace import Abort, Map, Request, Response, Service, asgi, field, query, route

from _input import body_of, text_of

NAME_CHARACTERS = 200
TEXT_CHARACTERS = 1024
# So that an audit stays below the 10,000 calls that one transaction may make.
NAMES = 4000
# A function may have 1,024 calls open at once.
CALLS_AT_ONCE = 1000
# Reviews are kept in 256 entities, by the first two digits of their id. One entity for all would make every
# compose wait for every other; one for each review could not be counted.
BUCKETS = [f"{number:02x}" for number in range(256)]


class Credential(TypedDict):
    salt: str
    hash: str


class User(Service, name="media_user"):
    """Users and their passwords.

    A salted HMAC and not argon2id, because this example is about composing: a slow hash at each compose
    would be all that one could measure.
    """

    credential: Credential | None = None

    async def register(self, password: str) -> None:
        if self.credential is not None:
            raise Abort(f"the name {self.key} is taken")
        salt = self.ctx.uuid()
        self.credential = {"salt": salt, "hash": hashed(salt, password)}

    @query
    async def login(self, password: str) -> str:
        """The user's name, if the password is right."""
        known = self.credential or {"salt": "", "hash": ""}
        if not hmac.compare_digest(hashed(known["salt"], password), known["hash"]):
            raise Abort("wrong user or password")
        return self.key


class Movie(Service, name="media_movie"):
    """A movie's id by its title."""

    movie_id: str | None = field(default=None, name="id")

    async def register(self, id: str) -> None:
        if self.movie_id is not None:
            raise Abort(f"the movie {self.key} is registered already")
        self.movie_id = id

    @query
    async def id(self) -> str:
        if self.movie_id is None:
            raise Abort(f"there is no movie {self.key}")
        return self.movie_id


class Review(Service, name="media_review"):
    """Reviews by their id; the key is a bucket."""

    stored: int = field(default=0, name="count")
    review: Map[str, Any]

    async def add(self, review: dict[str, Any]) -> None:
        self.review[review["id"]] = review
        self.stored += 1

    @query
    async def get(self, id: str) -> Any:
        return await self.review.get(id)

    @query
    async def count(self) -> int:
        return self.stored


class Index(Service):
    """A list of reviews' ids, in the order they came."""

    stored: int = field(default=0, name="count")
    review: Map[str, str]

    async def add(self, id: str) -> None:
        self.review[f"{self.stored:09d}"] = id
        self.stored += 1

    @query
    async def ids(self, after: str | None = None, limit: int = 100) -> list[Any]:
        return await self.ctx.entries(prefix="review/", after=after, limit=limit)

    @query
    async def count(self) -> int:
        return self.stored


class UserReview(Index, name="media_user_review"):
    """Apart from `media_user`, which a compose only reads: users are read side by side."""


class MovieReview(Index, name="media_movie_review"):
    pass


class Registry(Service, name="media_registry"):
    """Which users and movies there are, for the audit. Written when one is registered, never by a compose."""

    count: int = 0
    name: Map[str, bool]

    async def add(self, name: str) -> None:
        if self.count == NAMES:
            raise Abort(f"this example keeps at most {NAMES} users and as many movies")
        if await self.name.contains(name):
            raise Abort(f"{name} is registered already")
        self.name[name] = True
        self.count += 1

    @query
    async def names(self) -> list[str]:
        return [name async for name in self.name.keys()]


class Media(Service):
    @route("POST /register_user")
    async def register_user(self, request: Request) -> dict[str, str]:
        username, password = [name_of(request, name) for name in ("username", "password")]
        await asyncio.gather(User(username).register(password), Registry("users").add(username))
        return {"username": username}

    @route("POST /register_movie")
    async def register_movie(self, request: Request) -> dict[str, str]:
        title, id = [name_of(request, name) for name in ("title", "id")]
        await asyncio.gather(Movie(title).register(id), Registry("movies").add(id))
        return {"title": title, "id": id}

    @route("POST /compose")
    async def compose(self, request: Request) -> Response:
        username, password, title = [name_of(request, name) for name in ("username", "password", "title")]
        body = body_of(request)
        # Two parts of a review are other services' state, and read at the same time.
        user, movie = await asyncio.gather(User(username).login(password), Movie(title).id())
        rating = body.get("rating")
        if isinstance(rating, bool) or not isinstance(rating, int | float) or not 0 <= rating <= 10:
            raise Abort("rating must be a number from 0 to 10")
        id = self.ctx.uuid()
        review = {"id": id, "user": user, "movie": movie, "title": title, "rating": rating}
        review |= {"text": text_of(body, "text", TEXT_CHARACTERS), "at": self.ctx.now_ms()}
        await asyncio.gather(
            Review(id[:2]).add(review),
            UserReview(user).add(id),
            MovieReview(movie).add(id),
        )
        return Response(f'"{id}"', headers={"content-type": "application/json"})

    @route("GET /audit")
    async def audit(self, request: Request) -> dict[str, int]:
        users, movies = await Registry("users").names(), await Registry("movies").names()
        reviews = await total(Review, BUCKETS)
        by_user, by_movie = await total(UserReview, users), await total(MovieReview, movies)
        # Reviews that are in one place and not in another: what a compose that began and did not end
        # would leave. All of this is read from one state, so it is 0.
        pending = abs(reviews - by_user) + abs(reviews - by_movie)
        return {"reviews": reviews, "by_user": by_user, "by_movie": by_movie, "pending": pending}


async def total(kind: type[Review] | type[Index], keys: list[str]) -> int:
    counted = 0
    for start in range(0, len(keys), CALLS_AT_ONCE):
        some = keys[start : start + CALLS_AT_ONCE]
        counted += sum(await asyncio.gather(*[kind(key).count() for key in some]))
    return counted


def hashed(salt: str, password: str) -> str:
    return hmac.new(salt.encode(), password.encode(), hashlib.sha256).hexdigest()


def name_of(request: Request, name: str) -> str:
    return text_of(body_of(request), name, NAME_CHARACTERS, 1)


services = [Media, User, Movie, Review, UserReview, MovieReview, Registry]
app = asgi(*services)
