import { isAlias, isMap, isNode, isScalar, isSeq, parseDocument, type Document, type Node } from 'yaml';

import type { SchemaNode } from '../platform/schema-node.ts';

/** The text of a configuration with `(secret)` for what its schema never shows. Lines without a secret stay as they are. */
export function masked(text: string, schema: SchemaNode): string {
  const document = parseDocument(text);
  // A text that is not YAML cannot be told apart from its secrets.
  if (document.errors.length > 0) return '';
  const ranges = hiddenIn(document, document.contents, [schema], 0).toSorted((a, b) => b[0] - a[0]);
  let shown = text;
  let last = text.length + 1;
  for (const [start, end] of ranges) {
    // An anchor that two settings refer to is found twice.
    if (end > last) continue;
    last = start;
    shown = `${shown.slice(0, start)}(secret)${shown.slice(end)}`;
  }
  return withoutCredentials(shown);
}

/** Names, passwords and signatures in addresses, as those of model files have them; in comments too. */
const withoutCredentials = (text: string): string =>
  text
    .replaceAll(/\b([a-z][a-z0-9+.-]*:\/\/)[^\s/@'"]+@/gi, '$1(secret)@')
    .replaceAll(/\b(https?:\/\/[^\s?#'"]+)\?[^\s#'",\]}]+/gi, '$1?(secret)');

type Range = readonly [start: number, end: number];

const depthMax = 64;

function hiddenIn(document: Document, node: unknown, schemas: readonly SchemaNode[], depth: number): readonly Range[] {
  if (depth > depthMax || !isNode(node)) return [];
  if (isAlias(node)) return hiddenIn(document, node.resolve(document), schemas, depth + 1);
  if (schemas.some(({ writeOnly }) => writeOnly === true)) return rangesOf(node);
  if (isMap(node))
    return node.items.flatMap(({ key, value }) => {
      const name = isScalar(key) ? String(key.value) : '';
      const inside = schemas.flatMap(alternatives).flatMap(({ properties }) => properties?.[name] ?? []);
      return hiddenIn(document, value, inside, depth + 1);
    });
  if (isSeq(node)) {
    const inside = schemas.flatMap(alternatives).flatMap(({ items }) => items ?? []);
    return node.items.flatMap((item) => hiddenIn(document, item, inside, depth + 1));
  }
  return [];
}

const alternatives = (schema: SchemaNode): readonly SchemaNode[] => [
  schema,
  ...(schema.anyOf ?? []).flatMap(alternatives),
];

const rangesOf = (node: Node): readonly Range[] => (node.range ? [[node.range[0], node.range[1]]] : []);
