// Who follows whom, what they posted, and what those they follow posted.
import { Abort, type Request, type Routes } from "millrace";

const NAME_CHARACTERS = 64;
// What one request reads of a timeline.
const PAGE_POSTS = 100;

export const routes: Routes = {
  async "POST /register"(ctx, request) {
    const { user } = request.json() ?? {};
    checkNames({ user });
    await ctx.call("social_user", user, "register");
    return { user };
  },

  // Both ends of an edge change in one transaction, so they agree at every instant.
  async "POST /follow"(ctx, request) {
    const { user, followee } = edge(request);
    await Promise.all([
      ctx.call("social_user", user, "follow", followee),
      ctx.call("social_user", followee, "addFollower", user),
    ]);
    return { user, followee };
  },

  async "POST /unfollow"(ctx, request) {
    const { user, followee } = edge(request);
    await Promise.all([
      ctx.call("social_user", user, "unfollow", followee),
      ctx.call("social_user", followee, "removeFollower", user),
    ]);
    return { user, followee };
  },

  "POST /compose"(ctx, request) {
    const { user, text } = request.json() ?? {};
    checkNames({ user });
    return ctx.call("social_user", user, "compose", text);
  },

  "GET /timeline": (ctx, request) => ctx.call("social_timeline", userOf(request), "posts", pageOf(request)),
  "GET /home": (ctx, request) => ctx.call("social_home", userOf(request), "posts", pageOf(request)),
  "GET /edges": (ctx, request) => ctx.call("social_user", userOf(request), "edges"),
};

function edge(request: Request): { user: string; followee: string } {
  const { user, followee } = request.json() ?? {};
  checkNames({ user, followee });
  if (user === followee) throw new Abort("users cannot follow themselves");
  return { user, followee };
}

const userOf = (request: Request) => request.query.get("user") ?? "";

/** Posts from `start` up to and without `stop`, the newest being 0. */
function pageOf(request: Request): { start: number; stop: number } {
  const start = Number(request.query.get("start") ?? 0);
  const stop = Number(request.query.get("stop") ?? start + 10);
  if (!Number.isSafeInteger(start) || !Number.isSafeInteger(stop) || start < 0 || stop < start || stop - start > PAGE_POSTS) {
    throw new Abort(`start and stop must be whole numbers, stop at most ${PAGE_POSTS} above start`);
  }
  return { start, stop };
}

function checkNames(names: Record<string, unknown>): void {
  for (const [what, name] of Object.entries(names)) {
    if (typeof name !== "string" || name === "" || name.length > NAME_CHARACTERS) {
      throw new Abort(`${what} must be a string of 1 to ${NAME_CHARACTERS} characters`);
    }
  }
}
