// A room and a seat, or neither: one transaction over a hotel, a flight and the orders.
import { Abort, type Request, type RouteContext, type Routes } from "millrace";
import { stock, type Stock } from "./_stock.ts";

const NAME_CHARACTERS = 64;

export default stock("hotel");

export const routes: Routes = {
  "POST /add_hotel": (ctx, request) => add(ctx, request, "hotel"),
  "POST /add_flight": (ctx, request) => add(ctx, request, "hotel_flight"),

  async "POST /reserve"(ctx, request) {
    const { user, flight, hotel } = request.json() ?? {};
    checkNames({ user, flight, hotel });
    try {
      await ctx.call("hotel_order", flight, "place", { user, hotel });
      return [true, `${user} has a room in ${hotel} and a seat on ${flight}`];
    } catch (error) {
      // Everything that `place` did is undone, and this answer is all that is left of it.
      if (error instanceof Abort) return [false, error.message];
      throw error;
    }
  },

  async "GET /audit"(ctx) {
    const hotels = await stocks(ctx, "hotel");
    const flights = await stocks(ctx, "hotel_flight");
    const orders = sum(await Promise.all(flights.map(([id]) => ctx.call<number>("hotel_order", id, "count"))));
    return {
      hotels: Object.fromEntries(hotels.map(([id, { left }]) => [id, left])),
      flights: Object.fromEntries(flights.map(([id, { left }]) => [id, left])),
      orders,
      // Rooms and seats taken for which there is no order (or the reverse): what a reservation that
      // began and did not end would leave. All of this is read from one state, so it is 0.
      locks: Math.abs(taken(hotels) - orders) + Math.abs(taken(flights) - orders),
    };
  },
};

async function add(ctx: RouteContext, request: Request, service: string) {
  const { id, capacity } = request.json() ?? {};
  checkNames({ id });
  await Promise.all([ctx.call(service, id, "add", capacity), ctx.call("hotel_registry", service, "add", id)]);
  return { id, capacity };
}

async function stocks(ctx: RouteContext, service: string): Promise<[string, Stock][]> {
  const ids = await ctx.call<string[]>("hotel_registry", service, "ids");
  return Promise.all(ids.map(async (id): Promise<[string, Stock]> => [id, await ctx.call(service, id, "state")]));
}

function checkNames(names: Record<string, unknown>): void {
  for (const [what, name] of Object.entries(names)) {
    if (typeof name !== "string" || name === "" || name.length > NAME_CHARACTERS) {
      throw new Abort(`${what} must be a string of 1 to ${NAME_CHARACTERS} characters`);
    }
  }
}

const sum = (numbers: number[]) => numbers.reduce((total, number) => total + number, 0);
const taken = (stocks: [string, Stock][]) => sum(stocks.map(([, { capacity, left }]) => capacity - left));
