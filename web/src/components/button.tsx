import { createLink } from '@tanstack/react-router';
import type { AnchorHTMLAttributes, ButtonHTMLAttributes, ReactNode, Ref } from 'react';

import { classes } from './classes.ts';
import styles from './button.module.css';

interface Look {
  /** `primary`: the one of the page. */
  readonly look?: 'plain' | 'primary' | 'danger' | 'quiet';
  readonly small?: boolean;
  /** As wide as what it is in. */
  readonly wide?: boolean;
}

const lookOf = ({ look = 'plain', small, wide }: Look, isIcon = false, others?: string): string =>
  classes(
    styles['button'],
    styles[look],
    small === true && styles['small'],
    wide === true && styles['wide'],
    isIcon && styles['icon'],
    others,
  );

export interface ButtonProps extends Look, ButtonHTMLAttributes<HTMLButtonElement> {
  /** Waits for its work: it cannot be pressed, and says so. */
  readonly busy?: boolean;
  readonly ref?: Ref<HTMLButtonElement>;
}

export function Button({ look, small, wide, busy, disabled, className, children, ...others }: ButtonProps) {
  return (
    <button
      type="button"
      className={lookOf({ ...(look && { look }), ...(small && { small }), ...(wide && { wide }) }, false, className)}
      disabled={disabled === true || busy === true}
      aria-busy={busy}
      {...others}
    >
      {children}
    </button>
  );
}

interface IconButtonProps extends Omit<ButtonProps, 'children'> {
  /** What it does, for readers of the screen and as its tip. */
  readonly label: string;
  readonly icon: ReactNode;
}

export function IconButton({ label, icon, look = 'quiet', small, className, ...others }: IconButtonProps) {
  return (
    <button
      type="button"
      className={lookOf({ look, ...(small && { small }) }, true, className)}
      aria-label={label}
      title={label}
      {...others}
    >
      {icon}
    </button>
  );
}

interface AnchorProps extends Look, AnchorHTMLAttributes<HTMLAnchorElement> {
  readonly ref?: Ref<HTMLAnchorElement>;
}

function Anchor({ look, small, wide, className, ...others }: AnchorProps) {
  return (
    <a
      className={lookOf({ ...(look && { look }), ...(small && { small }), ...(wide && { wide }) }, false, className)}
      {...others}
    />
  );
}

/** A way to another page that looks like a button. */
export const LinkButton = createLink(Anchor);
