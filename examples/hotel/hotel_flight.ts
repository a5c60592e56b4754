import { stock } from "./_stock.ts";

export default stock("flight");
