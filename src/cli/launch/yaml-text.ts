import { isDeepStrictEqual } from 'node:util';
import { isMap, isSeq, parseDocument, stringify, type Document, type YAMLSeq } from 'yaml';

import { TextProblem } from './json-text.ts';

type Item = Readonly<Record<string, unknown>> & { readonly name: string };

/**
 * Returns the text with this item in the list at the path: in place of the one with its name, or at the end. The rest stays byte
 * for byte; if the list has an unusual form, comments stay, but white space may change.
 */
export function withYamlItem(text: string, path: readonly string[], item: Item): string {
  const document = parseDocument(text);
  const [problem] = document.errors;
  if (problem !== undefined) throw new TextProblem(text, problem.pos[0], problem.message.split('\n')[0]!);
  if (document.contents !== null && !isMap(document.contents)) throw new TextProblem(text, 0, 'expected a mapping');
  const wanted = changed(document.clone(), path, item);
  const spliced = splice(text, document, path, item);
  // Text put together from pieces is used only after it has been parsed again.
  if (spliced !== undefined) {
    const again = parseDocument(spliced);
    if (again.errors.length === 0 && isDeepStrictEqual(again.toJS(), wanted.toJS())) return spliced;
  }
  return wanted.toString({ lineWidth: 0 });
}

/** The file's parsed content; `undefined` for an empty one. Throws `TextProblem`. */
export function readYamlText(text: string): unknown {
  const document = parseDocument(text);
  const [problem] = document.errors;
  if (problem !== undefined) throw new TextProblem(text, problem.pos[0], problem.message.split('\n')[0]!);
  return document.contents === null ? undefined : document.toJS();
}

function changed(document: Document, path: readonly string[], item: Item): Document {
  if (document.contents === null) document.contents = document.createNode({}) as unknown as typeof document.contents;
  const list = document.getIn(path);
  if (!isSeq(list)) document.setIn(path, document.createNode([item]));
  else if (indexOf(list, item) === -1) list.add(document.createNode(item));
  else list.set(indexOf(list, item), document.createNode(item));
  return document;
}

const indexOf = (list: YAMLSeq, { name }: Item): number =>
  list.items.findIndex((one) => isMap(one) && one.get('name') === name);

function splice(text: string, document: Document, path: readonly string[], item: Item): string | undefined {
  const lineEnd = text.includes('\r\n') ? '\r\n' : '\n';
  const list = document.getIn(path);
  if (list === undefined || list === null) return appended(text, document, path, item, lineEnd);
  if (!isSeq(list) || list.flow === true || list.items.length === 0) return undefined;
  const starts = list.items.map((one) => (one as { range?: [number, number, number] }).range?.[0] ?? -1);
  const lineStart = text.lastIndexOf('\n', starts[0]! - 1) + 1;
  const marker = /^([ \t]*)-[ \t]+$/.exec(text.slice(lineStart, starts[0]));
  if (marker === null) return undefined;
  const printed = block([item], marker[1]!, lineEnd);
  const at = indexOf(list, item);
  if (at === -1) {
    const end = endOf(text, list.items.at(-1));
    const gap = end > 0 && text[end - 1] !== '\n' ? lineEnd : '';
    return text.slice(0, end) + gap + printed + text.slice(end);
  }
  const from = text.lastIndexOf('\n', starts[at]! - 1) + 1;
  return text.slice(0, from) + printed + text.slice(endOf(text, list.items[at]));
}

/** The end of the last line of a node: what follows on separate lines, such as comments, is not part of it. */
function endOf(text: string, node: unknown): number {
  const { range } = node as { readonly range: readonly [number, number, number] };
  const value = text.slice(0, range[1]).trimEnd().length;
  const stop = text.indexOf('\n', value);
  return stop === -1 ? text.length : stop + 1;
}

/** For a file without the list: appends the list, with its parents, to the file. */
function appended(
  text: string,
  document: Document,
  path: readonly string[],
  item: Item,
  lineEnd: string,
): string | undefined {
  if (document.getIn(path.slice(0, 1)) !== undefined) return undefined;
  const value = path.slice(1).reduceRight<unknown>((inner, name) => ({ [name]: inner }), [item]);
  const gap = text === '' || text.endsWith('\n') ? '' : lineEnd;
  return text + gap + block({ [path[0]!]: value }, '', lineEnd);
}

const block = (value: unknown, indent: string, lineEnd: string): string =>
  stringify(value, { lineWidth: 0, indentSeq: true })
    .trimEnd()
    .split('\n')
    .map((line) => `${indent}${line}${lineEnd}`)
    .join('');
