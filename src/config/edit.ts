import { isMap, isNode, isSeq, parseDocument, visit, type Document, type YAMLMap, type YAMLSeq } from 'yaml';
import { defaultModels } from './defaults.ts';

/** A model as an entry of the file. */
export type ModelEntry = Readonly<Record<string, unknown>> & { readonly id: string };

/**
 * The text of a `tokenhouse.yaml` with one more model. Comments, quotes and order stay; white space within a line may change. A
 * file without `models` has used the default model, which stays after the new one.
 */
export function withModel(text: string, entry: ModelEntry): string {
  const document = parseDocument(text);
  if (document.contents === null) document.contents = document.createNode({}) as unknown as typeof document.contents;
  const models = modelsOf(document);
  if (models === undefined) document.set('models', document.createNode([entry, ...defaultModels]));
  else models.add(document.createNode(entry));
  return printed(document);
}

/** The text with one more backend or adapter of the model with this id, in any case; undefined if the file does not have it. */
export function withEntry(text: string, id: string, list: 'backends' | 'adapters', entry: object): string | undefined {
  const document = parseDocument(text);
  const model = modelsOf(document)
    ?.items.filter(isMap)
    .find((item) => isNamed(item, id));
  const entries = model?.get(list);
  if (model !== undefined && entries === undefined) model.set(list, document.createNode([entry]));
  else if (!isSeq(entries) || entries.anchor !== undefined) return undefined;
  else entries.add(document.createNode(entry));
  return printed(document);
}

/** A change to one model: what its backends lack, by their index in its list, and its window. */
export interface Correction {
  readonly id: string;
  readonly lacks: ReadonlyMap<number, readonly string[]>;
  /** Flags that the file sets, but no backend keeps. */
  readonly falseFlags: readonly (readonly string[])[];
  readonly contextLength: number | undefined;
}

/**
 * The text with what a model's backends were found not to support; undefined if the file does not have the model, or has its
 * backends elsewhere.
 */
export function withCorrection(text: string, correction: Correction): string | undefined {
  const { id, lacks, falseFlags, contextLength } = correction;
  const document = parseDocument(text);
  const model = modelsOf(document)
    ?.items.filter(isMap)
    .find((item) => isNamed(item, id));
  const backends = model?.get('backends');
  if (model === undefined || !isSeq(backends)) return undefined;
  for (const [index, names] of lacks) {
    const backend = backends.items[index];
    if (!isMap(backend)) return undefined;
    if (names.length === 0) backend.delete('lacks');
    else backend.set('lacks', document.createNode(names, { flow: true }));
  }
  for (const path of falseFlags) if (model.getIn(path) === true) model.setIn(path, false);
  if (contextLength !== undefined) model.set('context_length', contextLength);
  return printed(document);
}

/**
 * The text with these settings of a model, in the file's own names; `null` removes one. Undefined if the file does not have the model, or
 * if other entries may share what it has there.
 */
export function withSettings(
  text: string,
  id: string,
  settings: Readonly<Record<string, unknown>>,
): string | undefined {
  const document = parseDocument(text);
  const model = modelsOf(document)
    ?.items.filter(isMap)
    .find((item) => isNamed(item, id));
  if (model === undefined || Object.keys(settings).some((name) => isShared(model.get(name, true)))) return undefined;
  for (const [name, value] of Object.entries(settings)) setIn(document, model, name, value);
  return printed(document);
}

/** A group keeps its comments and what is not changed in it. */
function setIn(document: Document, map: YAMLMap, name: string, value: unknown): void {
  const before = map.get(name);
  if (value === null) map.delete(name);
  else if (isMap(before) && typeof value === 'object' && !Array.isArray(value)) {
    const wanted = value as Readonly<Record<string, unknown>>;
    const left = before.items.map(({ key }) => String(key)).filter((key) => !Object.hasOwn(wanted, key));
    for (const key of left) before.delete(key);
    for (const [key, member] of Object.entries(wanted)) setIn(document, before, key, member);
  } else if (JSON.stringify(isNode(before) ? before.toJS(document) : before) !== JSON.stringify(value))
    map.set(name, document.createNode(value));
}

/** The text with a backend of a model switched off or on; undefined if the file does not have it. `place` is its index in the file. */
export function withBackendDisabled(text: string, id: string, place: number, disabled: boolean): string | undefined {
  const document = parseDocument(text);
  const backends = modelsOf(document)
    ?.items.filter(isMap)
    .find((item) => isNamed(item, id))
    ?.get('backends');
  const backend = isSeq(backends) && backends.anchor === undefined ? backends.items[place] : undefined;
  if (!isMap(backend) || backend.anchor !== undefined) return undefined;
  if (disabled) backend.set('disabled', true);
  else backend.delete('disabled');
  return printed(document);
}

/** The text without the model with this id, in any case; undefined if the file does not have it. */
export function withoutModel(text: string, id: string): string | undefined {
  const document = parseDocument(text);
  const models = modelsOf(document);
  const index = models?.items.findIndex((item) => isMap(item) && isNamed(item, id));
  if (models === undefined || index === undefined || index === -1) return undefined;
  if (isShared(models.items[index])) return undefined;
  models.delete(index);
  return printed(document);
}

/** Whether there is an anchor in it: entries that refer to it would change with it, or have nothing to refer to. */
function isShared(node: unknown): boolean {
  let isFound = false;
  if (isNode(node))
    visit(node, (_key, part) => {
      isFound ||= isNode(part) && 'anchor' in part && part.anchor !== undefined;
    });
  return isFound;
}

function modelsOf(document: Document): YAMLSeq | undefined {
  const models = isMap(document.contents) ? document.get('models') : undefined;
  return isSeq(models) ? models : undefined;
}

const isNamed = (model: YAMLMap, id: string): boolean => String(model.get('id')).toLowerCase() === id.toLowerCase();

const printed = (document: Document): string =>
  document.toString({ lineWidth: 0, doubleQuotedMinMultiLineLength: Number.MAX_SAFE_INTEGER });
