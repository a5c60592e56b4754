// Composing a movie review: what it needs is fetched in parallel, and the review is stored in three
// places, all in one transaction.
import { Abort, type RouteContext, type Routes } from "millrace";
import { BUCKETS, bucketOf } from "./_buckets.ts";

const NAME_CHARACTERS = 200;
const TEXT_CHARACTERS = 1024;
// A function may have 1,024 calls open at once.
const CALLS_AT_ONCE = 1000;

export const routes: Routes = {
  async "POST /register_user"(ctx, request) {
    const { username, password } = request.json() ?? {};
    checkStrings({ username, password });
    await Promise.all([
      ctx.call("media_user", username, "register", password),
      ctx.call("media_registry", "users", "add", username),
    ]);
    return { username };
  },

  async "POST /register_movie"(ctx, request) {
    const { title, id } = request.json() ?? {};
    checkStrings({ title, id });
    await Promise.all([
      ctx.call("media_movie", title, "register", id),
      ctx.call("media_registry", "movies", "add", id),
    ]);
    return { title, id };
  },

  async "POST /compose"(ctx, request) {
    const { username, password, title, rating, text } = request.json() ?? {};
    checkStrings({ username, password, title });

    // The four parts of a review. Two of them are other services' state, and read at the same time.
    const [user, movie] = await Promise.all([
      ctx.call<string>("media_user", username, "login", password),
      ctx.call<string>("media_movie", title, "id"),
    ]);
    const id = ctx.uuid();
    const review = { id, user, movie, title, rating: checkRating(rating), text: checkText(text), at: ctx.now() };

    await Promise.all([
      ctx.call("media_review", bucketOf(id), "add", review),
      ctx.call("media_user_review", user, "add", id),
      ctx.call("media_movie_review", movie, "add", id),
    ]);
    return { headers: { "content-type": "application/json" }, body: JSON.stringify(id) };
  },

  async "GET /audit"(ctx) {
    const users = await ctx.call<string[]>("media_registry", "users", "names");
    const movies = await ctx.call<string[]>("media_registry", "movies", "names");
    const reviews = await count(ctx, "media_review", BUCKETS);
    const by_user = await count(ctx, "media_user_review", users);
    const by_movie = await count(ctx, "media_movie_review", movies);
    // Reviews that are in one place and not in another: what a compose that began and did not end
    // would leave. All of this is read from one state, so it is 0.
    const pending = Math.abs(reviews - by_user) + Math.abs(reviews - by_movie);
    return { reviews, by_user, by_movie, pending };
  },
};

async function count(ctx: RouteContext, service: string, keys: string[]): Promise<number> {
  let total = 0;
  for (let start = 0; start < keys.length; start += CALLS_AT_ONCE) {
    const some = keys.slice(start, start + CALLS_AT_ONCE);
    const counts = await Promise.all(some.map((key) => ctx.call<number>(service, key, "count")));
    for (const one of counts) total += one;
  }
  return total;
}

function checkStrings(values: Record<string, unknown>): void {
  for (const [name, value] of Object.entries(values)) {
    if (typeof value !== "string" || value === "" || value.length > NAME_CHARACTERS) {
      throw new Abort(`${name} must be a string of 1 to ${NAME_CHARACTERS} characters`);
    }
  }
}

function checkRating(rating: unknown): number {
  if (typeof rating === "number" && rating >= 0 && rating <= 10) return rating;
  throw new Abort("rating must be a number from 0 to 10");
}

function checkText(text: unknown): string {
  if (typeof text === "string" && text.length <= TEXT_CHARACTERS) return text;
  throw new Abort(`text must be a string of at most ${TEXT_CHARACTERS} characters`);
}
