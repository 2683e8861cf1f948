// crate: lua-src 547.1.0
// sources: lua-5.4.7/l*.c !lua.c !luac.c
// flags: -Ilua-5.4.7 -lm
#include "lua.h"
#include "lauxlib.h"
#include "lualib.h"

static const char program[] =
    "local words = {}\n"
    "local state = 42\n"
    "for n = 1, 3000 do\n"
    "  state = (state * 1103515245 + 12345) % 2147483648\n"
    "  local word = 'w' .. (state % 97)\n"
    "  words[word] = (words[word] or 0) + 1\n"
    "end\n"
    "local names = {}\n"
    "for name in pairs(words) do names[#names + 1] = name end\n"
    "table.sort(names)\n"
    "local text = table.concat(names, ',')\n"
    "local count = 0\n"
    "for name in text:gmatch('w(%d+)') do count = count + tonumber(name) end\n"
    "assert(text:gsub('w1', 'x'):find('x', 1, true))\n"
    "local co = coroutine.wrap(function() for n = 1, 100 do coroutine.yield(n) end end)\n"
    "for n = 1, 100 do count = count + co() end\n"
    "assert(count > 5000 and string.format('%5.2f', count))\n"
    "collectgarbage()\n";

int main(void) {
    lua_State *state = luaL_newstate();
    luaL_openlibs(state);
    int failed = luaL_dostring(state, program);
    lua_close(state);
    return failed;
}
