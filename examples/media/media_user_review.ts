// The reviews of a user. Apart from `media_user`, which a compose only reads: users are read side by side.
import { index } from "./_index.ts";

export default index();
