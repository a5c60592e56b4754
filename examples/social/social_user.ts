// A user: the fields `followee/<name>` and `follower/<name>` are the edges. What is stored twice is
// stored once, so following twice is the same as following once.
import { service, query, Abort, type Context, type QueryContext } from "millrace";
import { type Post } from "./_timeline.ts";

const TEXT_CHARACTERS = 1024;
// Followers one transaction sends a post to. The limit is 1,024 messages; below it, others get in between.
const FANOUT_MESSAGES = 500;

export default service({
  register(ctx) {
    if (ctx.get("registered")) throw new Abort(`the name ${ctx.key} is taken`);
    ctx.set("registered", true);
  },

  follow(ctx, followee: string) {
    checkRegistered(ctx);
    ctx.set(`followee/${followee}`, true);
  },
  addFollower(ctx, user: string) {
    checkRegistered(ctx);
    ctx.set(`follower/${user}`, true);
  },
  unfollow(ctx, followee: string) {
    checkRegistered(ctx);
    ctx.delete(`followee/${followee}`);
  },
  removeFollower(ctx, user: string) {
    checkRegistered(ctx);
    ctx.delete(`follower/${user}`);
  },

  edges: query((ctx) => {
    checkRegistered(ctx);
    return { followees: names(ctx, "followee/"), followers: names(ctx, "follower/") };
  }),

  /**
   * Posts: the user's own timeline has the post when this is answered. Followers get it by messages,
   * each exactly once and soon after, so that a post waits for no follower, however many there are.
   */
  async compose(ctx, text: string) {
    checkRegistered(ctx);
    if (typeof text !== "string" || text === "" || text.length > TEXT_CHARACTERS) {
      throw new Abort(`text must be a string of 1 to ${TEXT_CHARACTERS} characters`);
    }
    const post: Post = { id: ctx.uuid(), user: ctx.key, text, at: ctx.now() };
    await ctx.call("social_timeline", ctx.key, "add", post);
    fanOut(ctx, post);
    return post;
  },

  /** Goes on with a fan-out; sent by the transaction that sent to the followers up to `after`. */
  fanOutFrom(ctx, { post, after }: { post: Post; after: string }) {
    fanOut(ctx, post, after);
  },
});

function fanOut(ctx: Context, post: Post, after?: string): void {
  const followers = ctx.fields({ prefix: "follower/", after, limit: FANOUT_MESSAGES });
  for (const follower of followers) ctx.send("social_home", follower.slice("follower/".length), "add", post);
  if (followers.length < FANOUT_MESSAGES) return;
  ctx.send("social_user", ctx.key, "fanOutFrom", { post, after: followers[followers.length - 1] });
}

function checkRegistered(ctx: QueryContext): void {
  if (!ctx.get("registered")) throw new Abort(`there is no user ${ctx.key}`);
}

function names(ctx: QueryContext, prefix: string): string[] {
  return ctx.fields({ prefix }).map((field) => field.slice(prefix.length));
}
