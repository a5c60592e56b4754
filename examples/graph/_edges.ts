// Edge lists as text: one `source destination` a line. Empty lines are passed over.

/** Destinations by source, in the order of the text; or what is wrong with it. */
export type Parsed = { lists: [string, string[]][]; error?: undefined } | { error: string };

const NAME_CHARACTERS = 64;

export function parse(text: string): Parsed {
  // A Map, not an object: a node may be called "__proto__".
  const lists = new Map<string, string[]>();
  let lineNumber = 0;
  for (const line of singleSpaced(text).split("\n")) {
    lineNumber += 1;
    if (line === "" || line === " ") continue;
    const words = line.trim().split(" ");
    const [source, destination] = words;
    if (words.length !== 2 || source.length > NAME_CHARACTERS || destination.length > NAME_CHARACTERS) {
      const shown = JSON.stringify(line.slice(0, 40));
      return { error: `line ${lineNumber}: expected two names of at most ${NAME_CHARACTERS} characters, found ${shown}` };
    }
    const list = lists.get(source);
    if (list) list.push(destination);
    else lists.set(source, [destination]);
  }
  return { lists: [...lists] };
}

/** Tabs, carriage returns and runs of blanks as one space. Most texts have none, and one look at the
 *  whole text is much cheaper than a regular expression for each line. */
function singleSpaced(text: string): string {
  return /[^\S\n ]| {2}/.test(text) ? text.replace(/[^\S\n]+/g, " ") : text;
}
