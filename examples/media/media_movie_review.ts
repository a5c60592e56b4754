// The reviews of a movie; the key is the movie's id.
import { index } from "./_index.ts";

export default index();
