// What those whom a user follows posted.
import { timeline } from "./_timeline.ts";

export default timeline();
