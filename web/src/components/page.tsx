import { useEffect, useRef } from 'react';
import type { ReactNode } from 'react';

import { classes } from './classes.ts';
import styles from './page.module.css';

interface PageProps {
  readonly title: string;
  /** One sentence below the title. */
  readonly lead?: ReactNode;
  /** The one primary button, after others. */
  readonly actions?: ReactNode;
  /** Way up, before the title. */
  readonly crumb?: ReactNode;
  /** For forms and texts. */
  readonly narrow?: boolean;
  /** For a workspace: as wide as the window. */
  readonly wide?: boolean;
  readonly children: ReactNode;
}

/** A page: its title, which gets the focus when one comes here, and what it shows. */
export function Page({ title, lead, actions, crumb, narrow, wide, children }: PageProps) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${title} · Tokenhouse`;
  }, [title]);
  useEffect(() => {
    // Not where something on the page has taken it already.
    if (document.activeElement === document.body || document.activeElement?.closest('nav') !== null)
      heading.current?.focus({ preventScroll: true });
  }, []);
  return (
    <div className={classes(styles['page'], narrow === true && styles['narrow'], wide === true && styles['wide'])}>
      <div className={styles['head']}>
        <div className={styles['titles']}>
          {crumb !== undefined && <div className={styles['crumb']}>{crumb}</div>}
          <h1 ref={heading} tabIndex={-1}>
            {title}
          </h1>
          {lead !== undefined && <p className={styles['lead']}>{lead}</p>}
        </div>
        {actions !== undefined && <div className={styles['actions']}>{actions}</div>}
      </div>
      {children}
    </div>
  );
}

interface PanelProps {
  readonly title?: ReactNode;
  readonly actions?: ReactNode;
  /** Its content goes to its edges: tables. */
  readonly flush?: boolean;
  readonly children: ReactNode;
}

/** A part of a page, with a heading of the second level. */
export function Panel({ title, actions, flush, children }: PanelProps) {
  return (
    <section className={classes(styles['panel'], flush === true && styles['flush'])}>
      {(title !== undefined || actions !== undefined) && (
        <div className={styles['panelHead']}>
          {title !== undefined && <h2>{title}</h2>}
          {actions !== undefined && <div className={styles['actions']}>{actions}</div>}
        </div>
      )}
      {children}
    </section>
  );
}

/** Names and values, one under the other. */
export function Facts({ facts }: { readonly facts: readonly (readonly [string, ReactNode])[] }) {
  return (
    <dl className={styles['facts']}>
      {facts.map(([name, value]) => (
        <FactRow key={name} name={name} value={value} />
      ))}
    </dl>
  );
}

const FactRow = ({ name, value }: { readonly name: string; readonly value: ReactNode }) => (
  <>
    <dt>{name}</dt>
    <dd>{value}</dd>
  </>
);

export interface Tile {
  readonly name: string;
  readonly value: ReactNode;
  readonly note?: ReactNode;
}

/** Figures side by side. */
export function Tiles({ tiles }: { readonly tiles: readonly Tile[] }) {
  return (
    <dl className={styles['tiles']}>
      {tiles.map(({ name, value, note }) => (
        <div key={name} className={styles['tile']}>
          <dt>{name}</dt>
          <dd>
            {value}
            {note !== undefined && <small>{note}</small>}
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** Panels beside each other where there is room. */
export const Columns = ({ children }: { readonly children: ReactNode }) => (
  <div className={styles['grid']}>{children}</div>
);
