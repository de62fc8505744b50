import { useEffect, useLayoutEffect, useRef, useState } from 'react';
import type { MouseEvent, ReactNode } from 'react';

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
  /** The name of the row: its link is the link of the whole row, and the only one. */
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
 * (`app/keyboard.ts` finds them by `data-row`). The link covers its row; what is copied or has a tip lies above it; the
 * latter passes clicks on. The header of the table stays below the header of the page.
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
      <Scrolled>
        <table className={styles['table']} aria-label={label} onClick={passOn} onAuxClick={passOn}>
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
      </Scrolled>
      {list.hasMore && (
        <div className={styles['foot']}>
          <MoreButton list={list}>{t('loadMore')}</MoreButton>
        </div>
      )}
    </>
  );
}

/** Scrolls by itself only as long as the table is too wide: what scrolls keeps its header from those around it. */
function Scrolled({ children }: { readonly children: ReactNode }) {
  const place = useRef<HTMLDivElement>(null);
  const [isWide, setWide] = useState(false);
  useLayoutEffect(() => {
    const { current: box } = place;
    if (box === null) return undefined;
    const measure = (): void => setWide(box.firstElementChild!.getBoundingClientRect().width > box.clientWidth + 1);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box);
    observer.observe(box.firstElementChild!);
    return () => observer.disconnect();
  }, []);
  return (
    <div ref={place} className={classes(styles['scroll'], isWide && styles['isWide'])}>
      {children}
    </div>
  );
}

/** A click on what has a tip is one on the link of its row; an id is for selecting. A browser that is told to opens a tab. */
function passOn(event: MouseEvent<HTMLTableElement>): void {
  const { target, button } = event;
  if (!(target instanceof Element) || event.defaultPrevented || button > 1) return;
  if (target.closest('td :is(a, button, input, select, label, summary, code, [tabindex])') !== null) return;
  const link = target.closest('[data-row]')?.querySelector<HTMLAnchorElement>(`.${styles['main']} a`);
  if (link === undefined || link === null || getSelection()?.isCollapsed === false) return;
  if (button === 1 || event.ctrlKey || event.metaKey || event.shiftKey) window.open(link.href, '_blank', 'noopener');
  else link.click();
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
