import { createHash } from 'node:crypto';

import { openApiDocument } from './openapi-document.ts';
import type { DocumentFacts } from './openapi-document.ts';

/** The document as it is sent. */
export interface Published {
  readonly text: string;
  readonly etag: string;
}

/**
 * Prints the document on first use, and again only when the configuration has changed or a model has retired; in between, serving it only
 * writes bytes.
 */
export class PublishedDocument {
  #made: { readonly limits: unknown; readonly models: string; readonly published: Published } | undefined;

  /** `limits`: the object that identifies the configuration; another object means another configuration. */
  of(limits: object, facts: DocumentFacts): Published {
    const models = facts.models.map(({ id }) => id).join('\n');
    if (this.#made?.limits !== limits || this.#made.models !== models)
      this.#made = { limits, models, published: publish(facts) };
    return this.#made.published;
  }
}

function publish(facts: DocumentFacts): Published {
  const text = JSON.stringify(openApiDocument(facts));
  return { text, etag: `"${createHash('sha256').update(text).digest('base64url').slice(0, 27)}"` };
}
