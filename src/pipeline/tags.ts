import type { Headers } from '../dialects/dialect.ts';
import { ApiError } from '../errors.ts';

const tagsMax = 8;
/** Linear, and no longer than a tag: headers may have 16 kB. */
const isTag = (text: string): boolean => /^[a-z0-9_-]{1,32}$/.test(text);

/**
 * The labels of a request to a dedicated model, under which its usage is found (specification part 8): repeated headers
 * and comma-separated values both count, each label once, in the order of the request (contracts decision 17). Throws
 * `invalid_request_tag`.
 */
export function requestTags(headers: Headers): readonly string[] {
  const value = headers['service-request-tag'];
  if (value === undefined) return [];
  const tags = new Set<string>();
  for (const text of String(value).split(',')) {
    const tag = text.trim();
    if (!isTag(tag) || (!tags.has(tag) && tags.size === tagsMax)) {
      throw new ApiError(
        'invalid_request_tag',
        `A tag has 1 to 32 of a-z, 0-9, _ and -, and there are at most ${tagsMax}.`,
        { param: 'Service-Request-Tag' },
      );
    }
    tags.add(tag);
  }
  return [...tags];
}
