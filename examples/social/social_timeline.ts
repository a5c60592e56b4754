// What a user posted.
import { timeline } from "./_timeline.ts";

export default timeline();
