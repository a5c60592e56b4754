// Inference next to the model: a perceptron's weights are one field of bytes.
import { service, query, type Context, type Request } from "millrace";

const MAX_LAYERS = 8;
const MAX_WIDTH = 1024;
const MAX_WEIGHTS = 250_000; // float32: just under the 1 MiB that one field may hold

export default service({
  /** Stores or replaces the network; null, or what is wrong with it. */
  load(ctx, { layers, weights }: { layers: number[]; weights: number[] }) {
    const wrong = checkLayers(layers) ?? checkNumbers("weights", weights, weightCount(layers));
    if (wrong) return { error: wrong };
    ctx.set("layers", layers);
    ctx.set("weights", new Float32Array(weights));
    return null;
  },

  /** The network's outputs and the index of the largest; null when there is no such network. */
  predict: query((ctx, input: number[]) => {
    const layers: number[] | undefined = ctx.get("layers");
    if (layers === undefined) return null;
    const wrong = checkNumbers("input", input, layers[0]);
    if (wrong) return { error: wrong };
    // The bytes come back as they were stored; slice() starts a buffer of its own, which aligns them.
    const weights = new Float32Array(ctx.get("weights").slice().buffer);
    const outputs = forward(layers, weights, input);
    return { class: outputs.indexOf(Math.max(...outputs)), outputs };
  }),
});

function forward(layers: number[], weights: Float32Array, input: number[]): number[] {
  let values = input;
  let at = 0;
  for (const width of layers.slice(1)) {
    const next = [];
    for (let neuron = 0; neuron < width; neuron += 1) {
      let sum = 0;
      for (const value of values) sum += value * weights[at++];
      sum += weights[at++]; // the bias ends the row
      next.push(1 / (1 + Math.exp(-sum)));
    }
    values = next;
  }
  return values;
}

/** Each neuron has a weight for every value of the layer before, and a bias. */
function weightCount(layers: number[]): number {
  return layers.slice(1).reduce((sum, width, index) => sum + width * (layers[index] + 1), 0);
}

function checkLayers(layers: unknown): string | undefined {
  const isWidth = (width: unknown) => Number.isInteger(width) && Number(width) >= 1 && Number(width) <= MAX_WIDTH;
  if (!Array.isArray(layers) || layers.length < 2 || layers.length > MAX_LAYERS || !layers.every(isWidth)) {
    return `layers must be 2 to ${MAX_LAYERS} whole numbers from 1 to ${MAX_WIDTH}`;
  }
  const count = weightCount(layers);
  return count > MAX_WEIGHTS ? `these layers take ${count} weights; at most ${MAX_WEIGHTS} fit` : undefined;
}

function checkNumbers(name: string, numbers: unknown, count: number): string | undefined {
  if (!Array.isArray(numbers) || numbers.length !== count) return `${name} must be ${count} numbers`;
  const wrong = numbers.findIndex((number) => typeof number !== "number" || !Number.isFinite(Math.fround(number)));
  return wrong < 0 ? undefined : `${name}[${wrong}] is not a finite 32-bit number`;
}

const refuse = (status: number, error: string) => ({ status, body: { error } });

/** The body's JSON with a usable name; or a reply that says what is wrong. */
function parse(request: Request) {
  let body;
  try {
    body = request.json();
  } catch {
    return { refused: refuse(400, "the body is not JSON") };
  }
  const name = body?.name;
  if (typeof name !== "string" || !/^[A-Za-z0-9_.-]{1,64}$/.test(name)) {
    return { refused: refuse(400, "name must be 1 to 64 of A-Z a-z 0-9 _ . -") };
  }
  return { body, name };
}

export const routes = {
  async "POST /load"(ctx: Context, request: Request) {
    const { refused, body, name } = parse(request);
    if (refused) return refused;
    const { layers, weights } = body;
    const wrong = await ctx.call("neural", name, "load", { layers, weights });
    return wrong ? refuse(400, wrong.error) : { body: { name, layers, weights: weights.length } };
  },

  async "POST /predict"(ctx: Context, request: Request) {
    const { refused, body, name } = parse(request);
    if (refused) return refused;
    const result = await ctx.call("neural", name, "predict", body.input ?? null);
    if (result === null) return refuse(404, `no network ${name} is loaded`);
    return result.error ? refuse(400, result.error) : { body: result };
  },
};
