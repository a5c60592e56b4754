// A function without an entity: it touches no state, so nothing has to become durable.
import { type Routes } from "millrace";

const JSON_TYPE = { "content-type": "application/json" };

export const routes: Routes = {
  // Printed here, because a string that a route returns is sent as plain text.
  "POST /req": (ctx, request) => ({ headers: JSON_TYPE, body: JSON.stringify(request.json()) }),
};
