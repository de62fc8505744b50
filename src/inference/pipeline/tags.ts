import { isTag, tagRule, tagsMax } from '../../accounts/tags.ts';
import type { Headers } from '../dialects/dialect.ts';
import { ApiError } from '../../platform/errors.ts';

/**
 * Returns the tags of a request to a dedicated model, for finding its usage (specification part 8): repeated headers and comma-separated
 * values both count, each tag once, in the order of the request (contracts decision 17). Throws `invalid_request_tag`.
 */
export function requestTags(headers: Headers): readonly string[] {
  const value = headers['service-request-tag'];
  if (value === undefined) return [];
  const tags = new Set<string>();
  for (const text of String(value).split(',')) {
    const tag = text.trim();
    if (!isTag(tag) || (!tags.has(tag) && tags.size === tagsMax)) {
      throw new ApiError('invalid_request_tag', tagRule, { param: 'Service-Request-Tag' });
    }
    tags.add(tag);
  }
  return [...tags];
}
