import { counter } from "./_counter.ts";

export default counter();
