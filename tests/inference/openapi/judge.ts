import { readFileSync } from 'node:fs';

import { Compile, Errors } from 'typebox/schema';
import type { Validator } from 'typebox/schema';
import { parse } from 'yaml';

import { inRepository } from '../../support/repository.ts';

/** A part of a document, as JSON. */
export type Node = Readonly<Record<string, unknown>>;

const metaSchema = parse(
  readFileSync(inRepository('tests', 'fixtures', 'openapi', 'openapi-3.1.yaml'), 'utf8'),
) as Node;

/** What is wrong with a document by the published schema of OpenAPI 3.1. */
export const faultsOfDocument = (document: unknown): readonly string[] =>
  // Not the compiled check: it refuses documents in which it then finds no fault.
  Errors(metaSchema, document)[1].map(({ instancePath, message }) => `${instancePath}: ${message}`);

/** Judges values by the schemas of a document. */
export class DocumentJudge {
  readonly document: Node;
  readonly #schemas: Readonly<Record<string, Node>>;
  readonly #validators = new Map<string, Validator>();

  constructor(document: unknown) {
    this.document = document as Node;
    this.#schemas = closed((this.document['components'] as Node)['schemas']) as Readonly<Record<string, Node>>;
  }

  /** The part that a pointer in the document points at. */
  at(pointer: string): Node {
    let node: unknown = this.document;
    for (const step of pointer.replace(/^#\//, '').split('/')) {
      node = (node as Node)[step.replaceAll('~1', '/').replaceAll('~0', '~')];
      if (node === undefined) throw new Error(`nothing is at ${pointer}`);
    }
    const { $ref } = node as Node;
    return typeof $ref === 'string' ? this.at($ref) : (node as Node);
  }

  /** How a value departs from a schema; fields that it does not name count too, because a description is to be complete. */
  faults(schema: unknown, value: unknown): readonly string[] {
    const key = JSON.stringify(schema);
    let validator = this.#validators.get(key);
    if (validator === undefined) {
      validator = Compile({ ...(closed(schema) as object), components: { schemas: this.#schemas } });
      this.#validators.set(key, validator);
    }
    if (validator.Check(value)) return [];
    const faults = validator.Errors(value)[1].map(({ instancePath, message }) => `${instancePath}: ${message}`);
    return faults.length > 0 ? faults : ['refused, for a reason that the validator does not tell'];
  }

  /** The schema of an answer with this content type. */
  answerSchema(path: string, method: string, status: number, contentType: string): unknown {
    return this.#media(path, method, status, contentType)['schema'];
  }

  #media(path: string, method: string, status: number, contentType: string): Node {
    const operation = this.at(`#/paths/${path.replaceAll('/', '~1')}/${method}`);
    const response = (operation['responses'] as Node)[String(status)] as Node | undefined;
    if (response === undefined) throw new Error(`${method} ${path} does not say that it answers ${status}`);
    const { $ref } = response;
    const content = (typeof $ref === 'string' ? this.at($ref) : response)['content'] as Readonly<Record<string, Node>>;
    const media = content[contentType];
    if (media === undefined) throw new Error(`${method} ${path} does not say that ${status} is ${contentType}`);
    return media;
  }

  /** How the events of a stream depart from what the operation says of them. */
  faultsOfStream(path: string, sse: string): readonly string[] {
    const { schema, 'x-item-schema': item } = this.#media(path, 'post', 200, 'text/event-stream');
    // The schema of a body is one of all of it: in OpenAPI 3.1 a stream is a text.
    const ofText = this.faults(schema, sse);
    const ofEvents = eventsOf(sse).flatMap((event) =>
      this.faults(item, event).map((fault) => `${fault} in ${JSON.stringify(event)}`),
    );
    return [...ofText, ...ofEvents];
  }
}

/** The JSON of the events of a stream. */
export const eventsOf = (sse: string): readonly unknown[] =>
  // Not by a pattern: lines end in `\n` alone, and text may hold other separators.
  sse
    .split('\n')
    .filter((line) => line.startsWith('data: {'))
    .map((line) => JSON.parse(line.slice('data: '.length)) as unknown);

/** A schema whose objects have the fields that it names and no others. */
function closed(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(closed);
  if (typeof schema !== 'object' || schema === null) return schema;
  const node = Object.fromEntries(Object.entries(schema).map(([name, value]) => [name, closed(value)]));
  const { properties, additionalProperties } = schema as Node;
  const isOpen = Object.keys((properties ?? {}) as Node).length === 0 || additionalProperties !== undefined;
  return isOpen ? node : { ...node, additionalProperties: false };
}
