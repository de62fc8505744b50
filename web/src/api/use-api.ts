/**
 * How pages ask: `useGet` for one thing, `useList` for pages of a list, `useSend` for what changes something. Keys of the cache are
 * the path and its parameters, so that `refresh('/v1/keys')` renews every list and object below it.
 */
import { keepPreviousData, useInfiniteQuery, useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useCallback } from 'react';
import type { UseMutationResult, UseQueryResult } from '@tanstack/react-query';
import type { MaybeOptionalInit } from 'openapi-fetch';
import type { PathsWithMethod } from 'openapi-typescript-helpers';

import { accountId } from './account-choice.ts';
import { ApiFailure, client, content, newIdempotencyKey } from './client.ts';
import type { paths } from './schema.ts';
import { proveIdentity } from './step-up.ts';

type GetPath = PathsWithMethod<paths, 'get'>;
type Json<Operation> = Operation extends { readonly responses: infer Responses }
  ? Responses[keyof Responses & (200 | 201 | 202)] extends {
      readonly content: { readonly 'application/json': infer Body };
    }
    ? Body
    : undefined
  : never;
export type Got<Path extends GetPath> = Json<paths[Path]['get']>;
export type GetParams<Path extends GetPath> =
  MaybeOptionalInit<paths[Path], 'get'> extends { params?: infer Params } | undefined ? Params : undefined;

interface GetOptions {
  /** Asked again after so many milliseconds, also while the page is not in front. */
  readonly every?: number | undefined;
  /** false: not asked yet. */
  readonly enabled?: boolean | undefined;
  /** Shows what was there while parameters change. */
  readonly keepPrevious?: boolean | undefined;
  /** The API wants proof of identity before it shows it: the person is asked. */
  readonly proves?: boolean | undefined;
}

/** Also for loaders and tests of a key of the cache. */
export const getKey = (path: string, params?: unknown): readonly unknown[] => [
  'api',
  accountId() ?? '',
  path,
  params ?? {},
];

export function useGet<Path extends GetPath>(
  path: Path,
  params?: GetParams<Path>,
  { every, enabled, keepPrevious, proves }: GetOptions = {},
): UseQueryResult<Got<Path>, ApiFailure> {
  return useQuery<Got<Path>, ApiFailure>({
    queryKey: getKey(path, params),
    queryFn: ({ signal }) => (proves === true ? proved : now)(() => get(path, params, signal)),
    ...(every === undefined ? {} : { refetchInterval: ({ state: { error } }) => (isFinal(error) ? false : every) }),
    ...(enabled === undefined ? {} : { enabled }),
    ...(keepPrevious === true ? { placeholderData: keepPreviousData as never } : {}),
  });
}

const now = <Answer>(ask: () => Promise<Answer>): Promise<Answer> => ask();

/** What is not there, or not allowed, is not asked for again and again. */
const isFinal = (error: ApiFailure | null): boolean => error?.status === 403 || error?.status === 404;

/** Outside of components. */
export const get = <Path extends GetPath>(
  path: Path,
  params?: GetParams<Path>,
  signal?: AbortSignal,
): Promise<Got<Path>> =>
  content(client.GET(path as never, { params, ...(signal === undefined ? {} : { signal }) } as never)) as Promise<
    Got<Path>
  >;

/** What is no JSON: documents and exports. */
export const getFile = <Path extends GetPath>(path: Path, params?: GetParams<Path>): Promise<Blob> =>
  proved(() => content(client.GET(path as never, { params, parseAs: 'blob' } as never)) as unknown as Promise<Blob>);

type ListPath = {
  [Path in GetPath]: Got<Path> extends { readonly data: readonly unknown[]; readonly has_more: boolean } ? Path : never;
}[GetPath];
export type Row<Path extends ListPath> = Got<Path> extends { readonly data: readonly (infer One)[] } ? One : never;

export interface ListResult<One> {
  readonly rows: readonly One[];
  readonly isLoading: boolean;
  readonly error: ApiFailure | null;
  readonly hasMore: boolean;
  readonly isLoadingMore: boolean;
  readonly loadMore: () => void;
  readonly retry: () => void;
}

/** Pages of fifty, one after the other. */
export function useList<Path extends ListPath>(
  path: Path,
  params?: GetParams<Path>,
  { every, enabled, pageSize = 50 }: GetOptions & { readonly pageSize?: number } = {},
): ListResult<Row<Path>> {
  const found = useInfiniteQuery<ListBody, ApiFailure>({
    queryKey: [...getKey(path, params), 'list'],
    queryFn: ({ signal, pageParam }: { readonly signal: AbortSignal; readonly pageParam: string | undefined }) => {
      const { query, ...others } = (params ?? {}) as { readonly query?: object };
      const after = pageParam === undefined ? {} : { after: pageParam };
      return get(
        path,
        { ...others, query: { limit: pageSize, ...query, ...after } } as never,
        signal,
      ) as Promise<ListBody>;
    },
    initialPageParam: undefined,
    getNextPageParam: (last: ListBody) => (last.has_more ? last.next_after : undefined),
    placeholderData: keepPreviousData,
    ...(every === undefined ? {} : { refetchInterval: every }),
    ...(enabled === undefined ? {} : { enabled }),
  } as never);
  const pages = (found.data as { readonly pages: readonly ListBody[] } | undefined)?.pages ?? [];
  return {
    rows: pages.flatMap(({ data }) => data) as Row<Path>[],
    isLoading: found.isPending && found.fetchStatus !== 'idle',
    error: found.error,
    hasMore: found.hasNextPage,
    isLoadingMore: found.isFetchingNextPage,
    loadMore: () => void found.fetchNextPage(),
    retry: () => void found.refetch(),
  };
}

interface ListBody {
  readonly data: readonly unknown[];
  readonly has_more: boolean;
  readonly next_after?: string;
}

type Method = 'post' | 'put' | 'patch' | 'delete';
type SendPath<Of extends Method> = PathsWithMethod<paths, Of>;
type Operation<Of extends Method, Path extends SendPath<Of>> =
  paths[Path] extends Record<Of, infer Found> ? Found : never;
export type SendInput<Of extends Method, Path extends SendPath<Of>> = {
  readonly params?: Operation<Of, Path> extends { readonly parameters: infer Parameters }
    ? { readonly [Place in keyof Parameters & ('path' | 'query')]?: Parameters[Place] }
    : never;
  readonly body?: Operation<Of, Path> extends {
    readonly requestBody?: { readonly content: { readonly 'application/json': infer Body } };
  }
    ? Body
    : never;
  /** The key of a form that may be sent again after an answer that was lost: it takes effect once. */
  readonly once?: string;
};

/** What the API answers. */
export type Sent<Of extends Method, Path extends SendPath<Of>> = Json<Operation<Of, Path>>;

/**
 * A change. Where the API wants to know once more who it is, the person is asked and the change is repeated. `refreshes` are the
 * paths whose lists and objects are asked for again.
 */
export function useSend<Of extends Method, Path extends SendPath<Of>>(
  method: Of,
  path: Path,
  { refreshes = [] }: { readonly refreshes?: readonly string[] } = {},
): UseMutationResult<Json<Operation<Of, Path>>, ApiFailure, SendInput<Of, Path>> {
  const refresh = useRefresh();
  return useMutation<Json<Operation<Of, Path>>, ApiFailure, SendInput<Of, Path>>({
    mutationFn: (input) => send(method, path, input),
    onSuccess: () => refresh(refreshes),
  });
}

/** Asks again for what begins with one of these paths. */
export function useRefresh(): (beginnings: readonly string[]) => Promise<void> {
  const queries = useQueryClient();
  return useCallback(
    (beginnings) =>
      queries.invalidateQueries({
        predicate: ({ queryKey: [kind, , asked] }) =>
          kind === 'api' && beginnings.some((beginning) => String(asked).startsWith(beginning)),
      }),
    [queries],
  );
}

/** Outside of components. */
export async function send<Of extends Method, Path extends SendPath<Of>>(
  method: Of,
  path: Path,
  { once, ...input }: SendInput<Of, Path> = {},
): Promise<Json<Operation<Of, Path>>> {
  const headers = method === 'post' ? { 'idempotency-key': once ?? newIdempotencyKey() } : {};
  return await proved<never>(() =>
    content(
      (client as unknown as Record<string, (path: string, init: object) => never>)[method.toUpperCase()]!(path, {
        ...input,
        headers,
      }),
    ),
  );
}

/** Where the API wants to know once more who it is, the person is asked, and then it is asked again. */
async function proved<Answer>(ask: () => Promise<Answer>): Promise<Answer> {
  try {
    return await ask();
  } catch (error) {
    if (!(error instanceof ApiFailure) || !error.needsStepUp || !(await proveIdentity())) throw error;
    return await ask();
  }
}
