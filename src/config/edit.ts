import { isMap, isSeq, parseDocument, type Document, type YAMLMap, type YAMLSeq } from 'yaml';
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

/** The text with one more backend of the model with this id, in any case; undefined if the file does not have it. */
export function withBackend(text: string, id: string, backend: object): string | undefined {
  const document = parseDocument(text);
  const backends = modelsOf(document)
    ?.items.filter(isMap)
    .find((item) => isNamed(item, id))
    ?.get('backends');
  if (!isSeq(backends)) return undefined;
  backends.add(document.createNode(backend));
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

/** The text with the list prices of a model, which every account may use from then on; undefined if the file does not have it. */
export function withTerms(text: string, id: string, pricing: object): string | undefined {
  const document = parseDocument(text);
  const model = modelsOf(document)
    ?.items.filter(isMap)
    .find((item) => isNamed(item, id));
  if (model === undefined) return undefined;
  model.set('pricing', document.createNode(pricing));
  model.delete('dedicated_to');
  return printed(document);
}

/** The text without the model with this id, in any case; undefined if the file does not have it. */
export function withoutModel(text: string, id: string): string | undefined {
  const document = parseDocument(text);
  const models = modelsOf(document);
  const index = models?.items.findIndex((item) => isMap(item) && isNamed(item, id));
  if (models === undefined || index === undefined || index === -1) return undefined;
  models.delete(index);
  return printed(document);
}

function modelsOf(document: Document): YAMLSeq | undefined {
  const models = isMap(document.contents) ? document.get('models') : undefined;
  return isSeq(models) ? models : undefined;
}

const isNamed = (model: YAMLMap, id: string): boolean => String(model.get('id')).toLowerCase() === id.toLowerCase();

const printed = (document: Document): string => document.toString({ lineWidth: 0 });
