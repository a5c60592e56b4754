import { service, query } from "millrace";
import { append, items } from "./_list.ts";

export default service({ append, items: query(items) });
