// Short codes for URLs. A code is the beginning of the URL's hash, and the code's entity holds the URL:
// one entity tells both whether a URL is known and where its code leads.
import { service, query, Abort, type RouteContext, type Routes } from "millrace";

const URLS_AT_ONCE = 100;
const URL_CHARACTERS = 2048;
// 48 bits; a code that another URL has already becomes longer.
const CODE_CHARACTERS = 8;

export default service({
  /** Gives this code to a URL, if it is free. */
  claim(ctx, url: string): "NotFound" | "Found" | "Taken" {
    const known = ctx.get("url");
    if (known !== undefined) return known === url ? "Found" : "Taken";
    ctx.set("url", url);
    return "NotFound";
  },
  url: query((ctx) => ctx.get("url") ?? null),
});

export const routes: Routes = {
  async "POST /shorten"(ctx, request) {
    const urls = request.json();
    if (!Array.isArray(urls) || urls.length > URLS_AT_ONCE) {
      throw new Abort(`the body must be a list of at most ${URLS_AT_ONCE} URLs`);
    }
    return Promise.all(urls.map((url) => shorten(ctx, url)));
  },

  async "GET /:short"(ctx, request) {
    const url = await ctx.call("url", request.params.short, "url");
    if (url === null) return { status: 404, body: { error: "there is no such short URL" } };
    return { status: 302, headers: { location: url } };
  },
};

async function shorten(ctx: RouteContext, url: unknown): Promise<[string, string]> {
  // What a Location header can hold, and a scheme that is safe to send a browser to.
  if (typeof url !== "string" || url.length > URL_CHARACTERS || !/^https?:\/\/[\x21-\x7e]+$/i.test(url)) {
    throw new Abort(`a URL is http:// or https:// and visible ASCII, ${URL_CHARACTERS} characters at most`);
  }
  const hash = crypto.sha256(url, "base64url");
  for (let length = CODE_CHARACTERS; length <= hash.length; length += 1) {
    const short = hash.slice(0, length);
    const outcome = await ctx.call("url", short, "claim", url);
    if (outcome !== "Taken") return [outcome, short];
  }
  throw new Abort("every code of this URL is taken");
}
