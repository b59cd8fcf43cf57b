/**
 * The clipboard is one for all clients of a browser. Any page may write to it, so what is kept from
 * those who share a browser is reading: by permission, by the keys for paste, by the command. What
 * is selected, and pasted by the middle button, is another one: browsers are started without it.
 */
import type { Params } from './command.ts'
import type { Request, Rule } from './request.ts'

const WHY = 'the clipboard'
const COMMON_TO_ALL = `${WHY} of a browser is common to all of its clients; see --own-browsers`

/** Bits of `modifiers`, and keys as Windows counts them: what the browser goes by. */
const [CONTROL, META, SHIFT] = [2, 4, 8]
const [KEY_V, KEY_INSERT] = [86, 45]
const PASTE = /paste/i

/** Types by which `Browser.grantPermissions` lets a page read it, or see what others show. */
const GRANTS_MORE: ReadonlySet<unknown> = new Set(['clipboardReadWrite', 'displayCapture'])

function isPaste({ modifiers, windowsVirtualKeyCode, key: name, code, commands }: Params): boolean {
  // A key of its own on some keyboards. By its name alone: it needs no number.
  if (PASTE.test(String(name)) || PASTE.test(String(code))) return true
  const held = Number(modifiers ?? 0)
  const key = Number(windowsVirtualKeyCode ?? 0)
  if (key === KEY_V && (held & (CONTROL | META)) !== 0) return true
  if (key === KEY_INSERT && (held & SHIFT) !== 0) return true
  // On macOS a key comes with the editing commands that it stands for.
  return Array.isArray(commands) && commands.some((command) => PASTE.test(String(command)))
}

function letsRead({ permission, setting }: Params): boolean {
  if (setting !== 'granted' || typeof permission !== 'object' || permission === null) return false
  const { name, allowWithoutSanitization } = permission as Params
  if (name === 'clipboard-write') return allowWithoutSanitization === true
  return name === 'clipboard-read' || name === 'display-capture'
}

/** Grants what of a list may be granted; what may not is told, or refused if it is all there is. */
function grantList(inContext: Rule): Rule {
  return (request) => {
    const { permissions } = request.params
    const asked: readonly unknown[] = Array.isArray(permissions) ? permissions : []
    const refused = asked.filter((type) => GRANTS_MORE.has(type))
    if (refused.length === 0) return inContext(request)
    if (refused.length === asked.length) return request.denyCommon(WHY)
    const text = `Holdfast did not grant ${refused.join(', ')}: ${COMMON_TO_ALL}`
    request.session.client.warn(text)
    inContext(request.with({ permissions: asked.filter((type) => !GRANTS_MORE.has(type)) }))
  }
}

function unless(isReading: (params: Params) => boolean, otherwise: Rule): Rule {
  return (request: Request) => {
    if (isReading(request.params)) return request.denyCommon(WHY)
    otherwise(request)
  }
}

/** The rules of the commands by which it could be read; `inContext` is that of permissions. */
export function clipboardRules(inContext: Rule): Readonly<Record<string, Rule>> {
  return {
    'Input.dispatchKeyEvent': unless(isPaste, (request) => request.pass()),
    'Browser.grantPermissions': grantList(inContext),
    'Browser.setPermission': unless(letsRead, inContext),
  }
}
