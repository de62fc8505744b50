import { isAlias, isMap, isScalar, isSeq, LineCounter, parseDocument, type Document } from 'yaml';

/** A YAML text as plain data, with the position of each piece of it. */
export interface SourceDocument {
  readonly value: unknown;
  readonly faults: readonly Fault[];
  /** `path` consists of keys and indices; a path that is not in the text yields the nearest one that is. */
  placeOf(path: Path): Place;
  /** The position of a key itself instead of its value. */
  placeOfKey(path: Path): Place;
  /** Whether there is something at exactly this path. */
  has(path: Path): boolean;
  /** A scalar exactly as written, such as `0.10`. */
  textOf(path: Path): string | undefined;
}

export type Path = readonly (string | number)[];

export interface Place {
  readonly line: number;
  readonly column: number;
}

/** A fault of the YAML itself, regardless of its meaning. */
export interface Fault {
  readonly place: Place;
  readonly what: string;
}

const depthMax = 64;
const nodesMax = 100_000;

/** Parses one YAML 1.2 document. Aliases are followed within bounds; objects have no prototype. */
export function readYaml(text: string): SourceDocument {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false, strict: true, uniqueKeys: true });
  const pieces = new Map<string, Piece>();
  const place = (offset: number): Place => {
    const { line, col } = lines.linePos(offset);
    return { line: Math.max(1, line), column: Math.max(1, col) };
  };
  const faults = [...document.errors, ...document.warnings].map((fault) => ({
    place: place(fault.pos[0]),
    what: inWords(fault.code, fault.message),
  }));
  let value: unknown;
  if (faults.length === 0) {
    try {
      value = plain(document, document.contents, [], pieces, { nodes: 0 });
    } catch (error) {
      if (error instanceof UnknownAlias) faults.push({ place: place(error.offset), what: error.message });
      else if (error instanceof TooLarge) faults.push({ place: { line: 1, column: 1 }, what: error.message });
      else throw error;
    }
  }
  const nearest = (path: Path): Piece | undefined => {
    for (let length = path.length; length >= 0; length--) {
      const piece = pieces.get(keyOf(path.slice(0, length)));
      if (piece !== undefined) return piece;
    }
    return undefined;
  };
  return {
    value,
    faults,
    placeOf: (path) => place(nearest(path)?.offset ?? 0),
    placeOfKey: (path) => {
      const piece = nearest(path);
      return place(piece?.keyOffset ?? piece?.offset ?? 0);
    },
    has: (path) => pieces.has(keyOf(path)),
    textOf: (path) => pieces.get(keyOf(path))?.text,
  };
}

interface Piece {
  readonly offset: number;
  readonly keyOffset: number | undefined;
  readonly text: string | undefined;
}

class TooLarge extends Error {}

class UnknownAlias extends Error {
  readonly offset: number;

  constructor(name: string, offset: number) {
    super(
      `the alias *${name.slice(0, 60)} is undefined; write &${name.slice(0, 60)} before the value that it refers to`,
    );
    this.offset = offset;
  }
}

const keyOf = (path: Path): string => JSON.stringify(path);

function plain(
  document: Document,
  node: unknown,
  path: Path,
  pieces: Map<string, Piece>,
  count: { nodes: number },
  keyOffset?: number,
  aliasOffset?: number,
): unknown {
  if (++count.nodes > nodesMax || path.length > depthMax) {
    throw new TooLarge(
      `the file has more than ${nodesMax} values, or is nested deeper than ${depthMax}; each use of an alias counts`,
    );
  }
  if (isAlias(node)) {
    const target = node.resolve(document);
    if (target === undefined) throw new UnknownAlias(node.source, node.range?.[0] ?? 0);
    return plain(document, target, path, pieces, count, keyOffset, aliasOffset ?? node.range?.[0]);
  }
  // A fault in an aliased value is reported where the alias is used.
  const offset = aliasOffset ?? (node as { range?: readonly number[] } | null)?.range?.[0] ?? keyOffset ?? 0;
  pieces.set(keyOf(path), { offset, keyOffset, text: isScalar(node) ? node.source : undefined });
  if (isMap(node)) {
    const result = Object.create(null) as Record<string, unknown>;
    for (const { key, value } of node.items) {
      const name = isScalar(key) ? String(key.value) : String(key);
      const offsetOfKey = (key as { range?: readonly number[] } | null)?.range?.[0];
      result[name] = plain(document, value, [...path, name], pieces, count, offsetOfKey, aliasOffset);
    }
    return result;
  }
  if (isSeq(node))
    return node.items.map((item, index) =>
      plain(document, item, [...path, index], pieces, count, undefined, aliasOffset),
    );
  return isScalar(node) ? node.value : null;
}

function inWords(code: string, message: string): string {
  switch (code) {
    case 'DUPLICATE_KEY':
      return 'this key occurs twice in the same group, so one value would be lost; remove one';
    case 'MULTIPLE_DOCS':
      return 'a second YAML document begins here and would be ignored; remove the line `---` and what follows';
    case 'TAB_AS_INDENT':
      return 'a tab is used for indentation, which YAML does not allow; use spaces';
    case 'TAG_RESOLVE_FAILED':
      return 'tags such as `!name` have no meaning here; remove it';
    default:
      return `not valid YAML: ${message.split('\n')[0]}; check indentation, quotes and brackets above this line`;
  }
}
