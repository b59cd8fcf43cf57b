/**
 * A browser has one clipboard for all of its clients. Any page may write to it, so in a shared
 * browser reading is refused: by permission, by the keys for paste, by editing commands. The middle
 * mouse button pastes the selection, which is another clipboard: browsers are started without it.
 */
import type { Params } from './protocol.ts'

export const CLIPBOARD = 'all clients of this browser share the clipboard'

/** Bits of `modifiers`, and Windows' virtual key codes: Chromium decides by them. */
const [CONTROL, META, SHIFT] = [2, 4, 8]
const [KEY_V, KEY_INSERT] = [86, 45]
const PASTE = /paste/i

/** Types of `Browser.grantPermissions` by which a page reads the clipboard or sees other pages. */
export const UNSHAREABLE_PERMISSIONS: ReadonlySet<unknown> = new Set([
  'clipboardReadWrite',
  'displayCapture',
])

/** Whether the params of `Input.dispatchKeyEvent` paste. */
export function pastes({ modifiers, windowsVirtualKeyCode, key, code, commands }: Params): boolean {
  // The key `Paste` of some keyboards needs no key code.
  if (PASTE.test(String(key)) || PASTE.test(String(code))) return true
  const held = Number(modifiers ?? 0)
  const keyCode = Number(windowsVirtualKeyCode ?? 0)
  if (keyCode === KEY_V && (held & (CONTROL | META)) !== 0) return true
  if (keyCode === KEY_INSERT && (held & SHIFT) !== 0) return true
  // On macOS a key event names its editing commands.
  return Array.isArray(commands) && commands.some((command) => PASTE.test(String(command)))
}

/** Whether the params of `Browser.setPermission` let a page read the clipboard or other pages. */
export function grantsReading({ permission, setting }: Params): boolean {
  if (setting !== 'granted' || typeof permission !== 'object' || permission === null) return false
  const { name, allowWithoutSanitization } = permission as Params
  if (name === 'clipboard-write') return allowWithoutSanitization === true
  return name === 'clipboard-read' || name === 'display-capture'
}
