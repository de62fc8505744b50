import { useQuery } from '@tanstack/react-query';

interface Section {
  /** The page and the heading: `/docs/keys#rotation`. */
  readonly url: string;
  readonly heading: string;
  /** Title of the page. */
  readonly page: string;
}

/** The same documentation for as long as the page is open: words that were searched for once are not again. */
const freshMs = 10 * 60_000;

/** Headings of the documentation for words, best first; none where it is not built. The host searches: nobody loads its index. */
export function useDocsFound(words: string, enabled: boolean): readonly Section[] {
  const { data = [] } = useQuery({
    queryKey: ['docs', words],
    queryFn: async ({ signal }): Promise<readonly Section[]> => {
      const headers = { accept: 'application/json' };
      const answer = await fetch(`/docs/search?${new URLSearchParams({ q: words })}`, { headers, signal });
      return answer.ok ? ((await answer.json()) as { readonly data: readonly Section[] }).data : [];
    },
    staleTime: freshMs,
    enabled,
    retry: false,
  });
  return data;
}
