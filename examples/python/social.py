"""Who follows whom, what they posted, and what those they follow posted."""

import asyncio
from typing import Any, TypedDict

from millrace import Abort, Map, Request, Service, asgi, query, route, transaction

from _input import body_of, text_of

NAME_CHARACTERS = 64
TEXT_CHARACTERS = 1024
# What one request reads of a timeline.
PAGE_POSTS = 100
# Older posts are dropped, which bounds a timeline.
KEPT_POSTS = 1000
# Followers one transaction sends a post to. The limit is 1,024 messages; below it, others get in between.
FANOUT_MESSAGES = 500


class Post(TypedDict):
    id: str
    user: str
    text: str
    at: int


class Timeline(Service, name="social_timeline"):
    """Posts in the order they came; here, what a user posted."""

    count: int = 0
    post: Map[int, Post]

    async def add(self, post: Post) -> None:
        self.post[self.count] = post
        if self.count >= KEPT_POSTS:
            del self.post[self.count - KEPT_POSTS]
        self.count += 1

    @query
    async def posts(self, start: int, stop: int) -> list[Post]:
        """Newest first."""
        found = []
        for number in range(self.count - 1 - start, max(self.count - 1 - stop, -1), -1):
            post = await self.post.get(number)
            if post is None:
                break
            found.append(post)
        return found


class Home(Timeline, name="social_home"):
    """What those whom a user follows posted."""


class User(Service, name="social_user"):
    """What is stored twice is stored once, so following twice is the same as following once."""

    registered: bool = False
    followee: Map[str, bool]
    follower: Map[str, bool]

    async def register(self) -> None:
        if self.registered:
            raise Abort(f"the name {self.key} is taken")
        self.registered = True

    async def follow(self, followee: str) -> None:
        self._check()
        self.followee[followee] = True

    @transaction(name="addFollower")
    async def add_follower(self, user: str) -> None:
        self._check()
        self.follower[user] = True

    async def unfollow(self, followee: str) -> None:
        self._check()
        del self.followee[followee]

    @transaction(name="removeFollower")
    async def remove_follower(self, user: str) -> None:
        self._check()
        del self.follower[user]

    @query
    async def edges(self) -> dict[str, list[str]]:
        self._check()
        return {
            "followees": [name async for name in self.followee.keys()],
            "followers": [name async for name in self.follower.keys()],
        }

    async def compose(self, text: Any) -> Post:
        """Posts: the user's own timeline has the post when this is answered.

        Followers get it by messages, each exactly once and soon after, so that a post waits for no follower.
        """
        self._check()
        if not isinstance(text, str) or not 1 <= len(text) <= TEXT_CHARACTERS:
            raise Abort(f"text must be a string of 1 to {TEXT_CHARACTERS} characters")
        post: Post = {"id": self.ctx.uuid(), "user": self.key, "text": text, "at": self.ctx.now_ms()}
        await Timeline(self.key).add(post)
        await self._fan_out(post, None)
        return post

    @transaction(name="fanOutFrom")
    async def fan_out_from(self, post: Post, after: str) -> None:
        """Goes on with a fan-out; sent by the transaction that sent to the followers up to `after`."""
        await self._fan_out(post, after)

    async def _fan_out(self, post: Post, after: str | None) -> None:
        followers = [name for name, _ in await self.follower.page(after=after, limit=FANOUT_MESSAGES)]
        for follower in followers:
            self.ctx.send(Home(follower).add, post)
        if len(followers) == FANOUT_MESSAGES:
            self.ctx.send(User(self.key).fan_out_from, post, followers[-1])

    def _check(self) -> None:
        if not self.registered:
            raise Abort(f"there is no user {self.key}")


class Social(Service):
    @route("POST /register")
    async def register(self, request: Request) -> dict[str, str]:
        user = name_of(request, "user")
        await User(user).register()
        return {"user": user}

    # Both ends of an edge change in one transaction, so they agree at every instant.
    @route("POST /follow")
    async def follow(self, request: Request) -> dict[str, str]:
        user, followee = edge(request)
        await asyncio.gather(User(user).follow(followee), User(followee).add_follower(user))
        return {"user": user, "followee": followee}

    @route("POST /unfollow")
    async def unfollow(self, request: Request) -> dict[str, str]:
        user, followee = edge(request)
        await asyncio.gather(User(user).unfollow(followee), User(followee).remove_follower(user))
        return {"user": user, "followee": followee}

    @route("POST /compose")
    async def compose(self, request: Request) -> Post:
        return await User(name_of(request, "user")).compose(body_of(request).get("text"))

    @route("GET /timeline")
    async def timeline(self, request: Request) -> list[Post]:
        return await Timeline(request.query.get("user", "")).posts(*page_of(request))

    @route("GET /home")
    async def home(self, request: Request) -> list[Post]:
        return await Home(request.query.get("user", "")).posts(*page_of(request))

    @route("GET /edges")
    async def edges(self, request: Request) -> dict[str, list[str]]:
        return await User(request.query.get("user", "")).edges()


def name_of(request: Request, name: str) -> str:
    return text_of(body_of(request), name, NAME_CHARACTERS, 1)


def edge(request: Request) -> tuple[str, str]:
    user, followee = name_of(request, "user"), name_of(request, "followee")
    if user == followee:
        raise Abort("users cannot follow themselves")
    return user, followee


def page_of(request: Request) -> tuple[int, int]:
    """Posts from `start` up to and without `stop`, the newest being 0."""
    try:
        start = int(request.query.get("start", "0"))
        stop = int(request.query.get("stop", str(start + 10)))
    except ValueError:
        start, stop = -1, -1
    if start < 0 or not start <= stop <= start + PAGE_POSTS:
        raise Abort(f"start and stop must be whole numbers, stop at most {PAGE_POSTS} above start")
    return start, stop


services = [Social, User, Timeline, Home]
app = asgi(*services)
