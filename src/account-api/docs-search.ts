/** A part of a page below one of its headings, as `scripts/docs-site.mjs` writes it. */
export interface DocsSection {
  /** The page and the anchor: `api#structured-answers`. */
  readonly id: string;
  /** Title of the page. */
  readonly page: string;
  readonly heading: string;
  readonly text: string;
}

export interface DocsIndex {
  readonly sections: readonly (DocsSection & { readonly lower: Readonly<Record<SearchedField, string>> })[];
}

export interface DocsMatch extends Pick<DocsSection, 'id' | 'page' | 'heading'> {
  /** The text around the first word found. */
  readonly part: string;
}

type SearchedField = 'heading' | 'page' | 'text';

export const indexOf = (sections: readonly DocsSection[]): DocsIndex => ({
  sections: sections.map((section) => {
    const { heading, page, text } = section;
    return {
      ...section,
      lower: { heading: heading.toLowerCase(), page: page.toLowerCase(), text: text.toLowerCase() },
    };
  }),
});

const wordsMax = 8;
const matchesMax = 20;

/**
 * The sections that contain every word, most relevant first: a word counts more in a heading than in the title of the page, and
 * more there than in the text. It reads all of the text, 0.6 MB, which takes 12 ms of processor time where an empty Node takes 0.4
 * s (0.065 on a quiet machine). MiniSearch took 1,012 ms there for its index, in the thread that serves requests.
 */
export function searchDocs({ sections }: DocsIndex, words: string): readonly DocsMatch[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean).slice(0, wordsMax);
  return sections
    .map((section) => ({ section, score: scoreOf(section.lower, wanted) }))
    .filter(({ score }) => score > 0)
    .toSorted((a, b) => b.score - a.score)
    .slice(0, matchesMax)
    .map(({ section: { id, page, heading, text, lower } }) => {
      const at = wanted.map((word) => lower.text.indexOf(word)).find((index) => index >= 0) ?? 0;
      return { id, page, heading, part: excerptOf(text, at) };
    });
}

const before = 60;
const after = 140;

/** Whole words around a position in the text. */
function excerptOf(text: string, at: number): string {
  const [from, to] = [Math.max(0, at - before), at + after];
  const start = from === 0 ? 0 : Math.min(text.indexOf(' ', from) + 1, at);
  const end = to >= text.length ? text.length : Math.max(text.lastIndexOf(' ', to), at);
  return `${start === 0 ? '' : '… '}${text.slice(start, end)}${end === text.length ? '' : ' …'}`;
}

/** 0 if one of the words is not found. */
function scoreOf(lower: Readonly<Record<SearchedField, string>>, words: readonly string[]): number {
  let score = 0;
  for (const word of words) {
    const inHeading = lower.heading.includes(word) ? 8 : 0;
    const inPage = lower.page.includes(word) ? 3 : 0;
    const inText = Math.min(4, lower.text.split(word, 5).length - 1);
    if (inHeading + inPage + inText === 0) return 0;
    score += inHeading + inPage + inText;
  }
  return score;
}
