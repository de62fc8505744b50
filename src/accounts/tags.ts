/** Labels of requests, by which their usage can be queried (specification part 8). */
export const tagsMax = 8;

/** Linear, and matches no more than a tag's length: headers may have 16 kB. */
export const isTag = (text: string): boolean => /^[a-z0-9_-]{1,32}$/.test(text);

/** Error text for an invalid tag. */
export const tagRule = `A tag must have 1 to 32 characters of a-z, 0-9, _ and -; at most ${tagsMax} tags are allowed.`;
