/** The names in the address of a page of usage, which the first load reads; what they are names of comes with the page. */
/** What can be drawn. */
export const figures = ['cost', 'requests', 'input', 'output'] as const;
export type Figure = (typeof figures)[number];

/** What a report may be divided by, and the field of a result that says so. */
export const groupings = {
  model: 'model',
  key: 'api_key_id',
  person: 'user_id',
  tag: 'tag',
  tier: 'service_tier',
  ending: 'ending',
} as const;
export type Grouping = keyof typeof groupings;
export const groupingNames = Object.keys(groupings) as readonly Grouping[];
