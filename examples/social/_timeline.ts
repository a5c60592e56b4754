import { service, query } from "millrace";

export type Post = { id: string; user: string; text: string; at: number };

// Older posts are dropped, which bounds a timeline.
const KEPT_POSTS = 1000;

/** A service whose entities are lists of posts, in the order they came: the field `post/<number>` is one. */
export const timeline = () =>
  service({
    add(ctx, post: Post) {
      const count = ctx.get("count") ?? 0;
      ctx.set(`post/${count}`, post);
      ctx.set("count", count + 1);
      ctx.delete(`post/${count - KEPT_POSTS}`);
    },

    /** Newest first. */
    posts: query((ctx, { start, stop }: { start: number; stop: number }) => {
      const count: number = ctx.get("count") ?? 0;
      const posts: Post[] = [];
      for (let number = count - 1 - start; number >= 0 && number > count - 1 - stop; number -= 1) {
        const post = ctx.get<Post>(`post/${number}`);
        if (post === undefined) break;
        posts.push(post);
      }
      return posts;
    }),
  });
