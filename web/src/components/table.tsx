import { useEffect, useRef } from 'react';
import type { ReactNode } from 'react';

import type { AppTexts } from '../app/messages/en.ts';
import type { ListResult } from '../api/use-api.ts';
import { useText } from '../i18n/text.ts';
import { Button } from './button.tsx';
import { classes } from './classes.ts';
import { ErrorNote, Skeleton } from './state.tsx';
import styles from './table.module.css';

export interface Column<Row> {
  /** Title of the column; on a phone it is before each cell. */
  readonly head: string;
  readonly cell: (row: Row) => ReactNode;
  /** Figures: at the right. */
  readonly number?: boolean;
  /** The name of the row: holds its link. */
  readonly main?: boolean;
  /** Buttons and menus: without a title on a phone. */
  readonly bare?: boolean;
}

interface DataTableProps<Row> {
  /** What the rows are, for readers of the screen. */
  readonly label: string;
  readonly columns: readonly Column<Row>[];
  /** Of `useList`. Rows that are there already: `wholeList(rows)`. */
  readonly list: ListResult<Row>;
  readonly keyOf: (row: Row) => string;
  /** Shown when there is no row. */
  readonly empty: ReactNode;
}

/**
 * A list as a table, page after page. `j` and `k` walk through its rows, Enter opens the first link of a row
 * (`app/keyboard.ts` finds them by `data-row`).
 */
export function DataTable<Row>({ label, columns, list, keyOf, empty }: DataTableProps<Row>) {
  const t = useText<AppTexts>('app');
  const { rows, error } = list;
  if (error !== null && rows.length === 0) return <ErrorNote error={error} onRetry={list.retry} />;
  if (list.isLoading)
    return (
      <div className={styles['wait']}>
        <Skeleton lines={6} />
      </div>
    );
  if (rows.length === 0) return <>{empty}</>;
  return (
    <>
      {error !== null && <ErrorNote error={error} onRetry={list.retry} />}
      <div className={styles['scroll']}>
        <table className={styles['table']} aria-label={label}>
          <thead>
            <tr>
              {columns.map(({ head, number }) => (
                <th key={head} scope="col" className={classes(number === true && styles['number'])}>
                  {head}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={keyOf(row)} data-row="">
                {columns.map((column) => (
                  <td
                    key={column.head}
                    data-head={column.head}
                    className={classes(
                      column.number === true && styles['number'],
                      column.main === true && styles['main'],
                      column.bare === true && styles['bare'],
                    )}
                  >
                    {column.cell(row)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {list.hasMore && (
        <div className={styles['foot']}>
          <MoreButton list={list}>{t('loadMore')}</MoreButton>
        </div>
      )}
    </>
  );
}

/** Also comes into sight by scrolling: then the next page is fetched before anybody presses it. */
function MoreButton({
  list,
  children,
}: {
  readonly list: ListResult<never> | ListResult<unknown>;
  readonly children: ReactNode;
}) {
  const button = useRef<HTMLButtonElement>(null);
  const more = useRef(list.loadMore);
  more.current = list.loadMore;
  useEffect(() => {
    if (button.current === null) return undefined;
    const observer = new IntersectionObserver(([entry]) => {
      // Only after somebody has scrolled: a short first page does not fetch the whole list.
      if (entry?.isIntersecting === true && document.scrollingElement!.scrollTop > 0) more.current();
    });
    observer.observe(button.current);
    return () => observer.disconnect();
  }, []);
  return (
    <Button ref={button} busy={list.isLoadingMore} onClick={() => list.loadMore()}>
      {children}
    </Button>
  );
}

/** Rows that are all there. */
export const wholeList = <Row,>(rows: readonly Row[]): ListResult<Row> => ({
  rows,
  isLoading: false,
  error: null,
  hasMore: false,
  isLoadingMore: false,
  loadMore: () => {},
  retry: () => {},
});
